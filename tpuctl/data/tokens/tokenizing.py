"""Checks token options, and builds the vocabulary if none is given."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import TOKENS, TokenOptions
from tpuctl.data.order.splits import Members
from tpuctl.data.schema.features import Feature, Other, Tensor, Text, example_kinds
from tpuctl.data.source import Indices, Observations, Part, Records, ScanProgress, Source, evenly_spaced
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.example_encoding import Encoder, Value, packed_ints
from tpuctl.data.tokens.vocabulary import MOST, SPECIAL, Vocabulary
from tpuctl.data.tokens.words import TokenEncoder, WordCounts, WordSplitter, learn_pieces
from tpuctl.errors import UsageError, nearest

_MEASURED = 500
"""Records that are read to estimate the size of all."""
TRAINING = "train"
"""The split that a vocabulary is learnt from: a model must know nothing of the others."""
_LONGEST = 1 << 16
"""Token ids of a record."""
_BATCH = 1024


def check_tokens(options: TokenOptions) -> None:
    """Raise UsageError for a length or a vocabulary size out of bounds."""
    least = 3 if options.kind == "wordpiece" else 1
    if not least <= options.length <= _LONGEST:
        raise UsageError(
            f"A record cannot have {options.length} token ids.",
            hint=f"From {least} to {_LONGEST}: --length 128",
            length=options.length,
        )
    special = len(SPECIAL[options.kind])
    if options.vocabulary_size is not None and not special < options.vocabulary_size <= MOST:
        raise UsageError(
            f"A vocabulary cannot have {options.vocabulary_size} entries.",
            hint=f"From {special + 1} to {MOST}; {', '.join(SPECIAL[options.kind])} are among them.",
            vocabulary=options.vocabulary_size,
        )


def tokenized(
    source: Source,
    options: TokenOptions,
    vocabulary: Vocabulary | None,
    splits: Sequence[Members],
    progress: ScanProgress,
) -> tuple[TokenizedSource, TokenOptions, Vocabulary]:
    """Return the source with ids in place of its text, the options completed, and the vocabulary.

    Without a `vocabulary` one is learnt from the split `train`; raises UsageError.
    """
    options = msgspec.structs.replace(options, text=text_field(source, options.text))
    if vocabulary is None:
        vocabulary = learn_vocabulary(source, options, _training(splits), progress)
    options = msgspec.structs.replace(options, entries=len(vocabulary))
    return TokenizedSource(source, options, vocabulary), options, vocabulary


def text_field(source: Source, chosen: str) -> str:
    """Return the name of the field that holds the text: `chosen`, or the only one; raises UsageError."""
    texts = [name for name, feature in source.features.items() if isinstance(feature, Text)]
    others = [name for name in source.features if name != chosen]
    if chosen and chosen not in texts:
        raise _no_text(chosen, texts, exists=chosen in source.features)
    if not texts:
        raise UsageError(
            f"--tokens makes ids of a text, and the source has none: its fields are {', '.join(others)}.",
            hint="Run it without --tokens; or say that a column is a text: --type COLUMN=text.",
        )
    if not chosen and len(texts) > 1:
        raise UsageError(
            f"--tokens makes ids of one text, and the source has several: {', '.join(texts)}.",
            hint=f"Say which: --text {shlex.quote(texts[0])}",
            texts=texts,
        )
    text = chosen or texts[0]
    _check_others({name: feature for name, feature in source.features.items() if name != text})
    return text


def learn_vocabulary(
    source: Source, options: TokenOptions, training: Members, progress: ScanProgress
) -> Vocabulary:
    """Return a vocabulary of at most `vocabulary_size` entries, from the records of the training split.

    They are read once; bad records are skipped, the conversion will name them. Raises UsageError where the
    size is too small for the characters of the texts.
    """
    split, counts, total = WordSplitter(cased=False), WordCounts(), len(training)
    for start in range(0, total, _BATCH):
        indices = np.sort(training.indices(start, min(start + _BATCH, total)))
        for record in source.read(indices, Observations()):
            if not isinstance(record, BadRecord):
                counts.add(split(text_of(decode(record).get(options.text, []))))
        progress(min(start + _BATCH, total), total)
    special = SPECIAL[options.kind]
    room = (options.vocabulary_size or 0) - len(special)
    words = counts.by_frequency()
    tokens = learn_pieces(words, room) if options.kind == "wordpiece" else [word for word, _ in words[:room]]
    return Vocabulary((*special, *tokens))


def _training(splits: Sequence[Members]) -> Members:
    for members in splits:
        if members.name == TRAINING:
            return members
    raise UsageError(
        f"A vocabulary is learnt from the split '{TRAINING}', which the source does not have.",
        hint="Give one: --vocabulary FILE.",
    )


def _no_text(name: str, texts: Sequence[str], *, exists: bool) -> UsageError:
    close = nearest(name, texts)
    listed = f"Its texts: {', '.join(texts)}." if texts else "It has no text."
    return UsageError(
        f"--tokens makes ids of a text, and the field '{name}' {'is no text' if exists else 'is not there'}.",
        hint=f"Did you mean {close[0]}?" if close else listed,
        field=name,
    )


def _check_others(features: Mapping[str, Feature]) -> None:
    """Raise UsageError where the other fields cannot be in a record with tokens."""
    if TOKENS in features:
        raise UsageError(
            f"The source has a field '{TOKENS}' already.", hint="Give that column another name.", field=TOKENS
        )
    for name, feature in features.items():
        if isinstance(feature, Other):
            raise UsageError(
                f"The field '{name}' is of a kind that can only be copied unchanged.",
                hint="Run it without --tokens, or make the source without that field.",
                field=name,
            )


# Wraps a source of any format, and replaces its text by token ids.


class TokenizedSource(Source):
    """The records of another source with the vector `tokens` in place of the text; other fields stay."""

    def __init__(self, inner: Source, options: TokenOptions, vocabulary: Vocabulary) -> None:
        """`options.text` names the field of the text."""
        self._inner = inner
        self._text = options.text
        self._ids = TokenEncoder(options.kind, vocabulary, options.length)
        self._tokens = Tensor("int64", (options.length,))
        features = self._replaced(inner.features)
        kinds = example_kinds(features)
        self._names = tuple(kinds)
        self._encoder = Encoder(kinds)
        super().__init__(
            kind=inner.kind,
            origin=inner,
            features=features,
            supervised=self._supervised(inner.supervised),
            labels=inner.labels,
            also=inner.also,
        )
        self.parts = self._measured(inner.parts)

    def read(self, indices: Indices, observations: Observations) -> Records:
        for record in self._inner.read(indices, observations):
            yield record if isinstance(record, BadRecord) else self._example(record)

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        return self._replaced(self._inner.final_features(observations))

    def close(self) -> None:
        self._inner.close()

    def _example(self, record: bytes) -> bytes:
        texts = decode(record)
        values: dict[str, Value] = dict(texts)
        values[TOKENS] = packed_ints(self._ids(text_of(texts[self._text])))
        return self._encoder.encode([values.get(name, ()) for name in self._names])

    def _replaced(self, features: Mapping[str, Feature]) -> dict[str, Feature]:
        """Return the features with the tokens in place of the text."""
        return {
            TOKENS if name == self._text else name: self._tokens if name == self._text else feature
            for name, feature in features.items()
        }

    def _supervised(self, pair: tuple[str, str] | None) -> tuple[str, str] | None:
        if pair is None:
            return None
        first, second = (TOKENS if name == self._text else name for name in pair)
        return first, second

    def _measured(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the splits with their bytes, estimated from some records."""
        sizes = self.sizes(evenly_spaced(sum(part.records for part in parts), _MEASURED))
        mean = sum(sizes) / len(sizes) if sizes else 0
        return tuple(Part(part.split, part.records, round(mean * part.records)) for part in parts)


def text_of(values: Values) -> str:
    """Return the text of a feature's values; bytes that are not UTF-8 become U+FFFD, which no token has."""
    text = values[0] if values else b""
    return text.decode(errors="replace") if isinstance(text, bytes) else ""
