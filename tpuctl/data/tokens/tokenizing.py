"""What is asked of tokens: checked, and brought about, with a vocabulary made where none is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import TOKENS, TokenOptions
from tpuctl.data.order.splits import Members
from tpuctl.data.schema.features import Feature, Other, Text
from tpuctl.data.source import Observations, ScanProgress, Source
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tokens.basic_tokenizer import WordSplitter
from tpuctl.data.tokens.tokenized_source import TokenizedSource, text_of
from tpuctl.data.tokens.vocabulary import MOST, SPECIAL, Vocabulary
from tpuctl.data.tokens.word_counts import WordCounts
from tpuctl.data.tokens.word_pieces import learn_pieces
from tpuctl.errors import UsageError, nearest

TRAINING = "train"
"""The split that a vocabulary is made from: of the others a model must know nothing."""
_LONGEST = 1 << 16
"""Token ids of a record."""
_BATCH = 1024


def check_tokens(asked: TokenOptions) -> None:
    """Raise UsageError for a length or a number of entries that cannot be."""
    least = 3 if asked.kind == "wordpiece" else 1
    if not least <= asked.length <= _LONGEST:
        raise UsageError(
            f"A record cannot have {asked.length} token ids.",
            hint=f"From {least} to {_LONGEST}: --length 128",
            length=asked.length,
        )
    special = len(SPECIAL[asked.kind])
    if asked.vocabulary_size is not None and not special < asked.vocabulary_size <= MOST:
        raise UsageError(
            f"A vocabulary cannot have {asked.vocabulary_size} entries.",
            hint=f"From {special + 1} to {MOST}; {', '.join(SPECIAL[asked.kind])} are among them.",
            vocabulary=asked.vocabulary_size,
        )


def tokenized(
    source: Source,
    asked: TokenOptions,
    vocabulary: Vocabulary | None,
    splits: Sequence[Members],
    progress: ScanProgress,
) -> tuple[TokenizedSource, TokenOptions, Vocabulary]:
    """Return the source with ids for its text, what was asked with all that is known now, the vocabulary.

    Without a `vocabulary` one is made of the split `train`; raises UsageError.
    """
    asked = msgspec.structs.replace(asked, text=text_field(source, asked.text))
    if vocabulary is None:
        vocabulary = learn(source, asked, _training(splits), progress)
    asked = msgspec.structs.replace(asked, entries=len(vocabulary))
    return TokenizedSource(source, asked, vocabulary), asked, vocabulary


def text_field(source: Source, wanted: str) -> str:
    """Return the name of the field that holds the text: `wanted`, or the only one; raises UsageError."""
    texts = [name for name, one in source.features.items() if isinstance(one, Text)]
    others = [name for name in source.features if name != wanted]
    if wanted and wanted not in texts:
        close = nearest(wanted, texts)
        what = "is no text" if wanted in source.features else "is not there"
        named = f"Its texts: {', '.join(texts)}." if texts else "It has no text."
        raise UsageError(
            f"--tokens makes ids of a text, and the field '{wanted}' {what}.",
            hint=f"Did you mean {close[0]}?" if close else named,
            field=wanted,
        )
    if not texts:
        raise UsageError(
            f"--tokens makes ids of a text, and the source has none: its fields are {', '.join(others)}.",
            hint="Leave --tokens out; or say that a column is a text: --type COLUMN=text.",
        )
    if not wanted and len(texts) > 1:
        raise UsageError(
            f"--tokens makes ids of one text, and the source has several: {', '.join(texts)}.",
            hint=f"Say which: --text {texts[0]}",
            texts=texts,
        )
    found = wanted or texts[0]
    _check_others({name: one for name, one in source.features.items() if name != found})
    return found


def learn(source: Source, asked: TokenOptions, training: Members, progress: ScanProgress) -> Vocabulary:
    """Return a vocabulary of at most `vocabulary_size` entries, made from the records of the training split.

    They are read once; bad ones are passed over, the conversion will name them. Raises UsageError where there
    is no room for the characters of the texts, or for anything.
    """
    split, counts, total = WordSplitter(cased=False), WordCounts(), len(training)
    for start in range(0, total, _BATCH):
        indices = np.sort(training.indices(start, min(start + _BATCH, total)))
        for record in source.read(indices, Observations()):
            if not isinstance(record, BadRecord):
                counts.add(split(text_of(decode(record).get(asked.text, ()))))
        progress(min(start + _BATCH, total), total)
    special = SPECIAL[asked.kind]
    room = (asked.vocabulary_size or 0) - len(special)
    words = counts.in_order()
    found = learn_pieces(words, room) if asked.kind == "wordpiece" else [word for word, _ in words[:room]]
    return Vocabulary((*special, *found))


def _training(splits: Sequence[Members]) -> Members:
    for one in splits:
        if one.name == TRAINING:
            return one
    raise UsageError(
        f"A vocabulary is made from the split '{TRAINING}', and there is none.",
        hint="Give one: --vocabulary FILE.",
    )


def _check_others(features: Mapping[str, Feature]) -> None:
    """Raise UsageError where the other fields cannot stand beside the tokens."""
    if TOKENS in features:
        raise UsageError(
            f"The source has a field '{TOKENS}' already.", hint="Give that column another name.", field=TOKENS
        )
    for name, one in features.items():
        if isinstance(one, Other):
            raise UsageError(
                f"The field '{name}' is of a kind that can only be handed on as it is.",
                hint="Leave --tokens out, or make the source without that field.",
                field=name,
            )
