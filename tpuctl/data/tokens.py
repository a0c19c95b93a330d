"""Texts as token ids: tokenizers, vocabularies, and the source that holds ids in place of text.

- Splits texts into words, learns vocabularies, and looks up ids, as BERT's own tokenizer does.

  Devlin et al., "BERT" (2018), `BasicTokenizer` and `WordpieceTokenizer`. Hugging Face's `tokenizers` 0.23.3
  is not used, as it learns another vocabulary of the same text in each process: `tokenize_words` of its
  BpeTrainer numbers the `##` characters in the order of a hash map. Conversions with it take longer, too.
- Defines a vocabulary: the id of each token, and its file, one token a line.
- Checks token options, and builds the vocabulary if none is given.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path
from unicodedata import category, normalize

import msgspec
import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import unreadable
from tpuctl.data.options import TOKENS, BadRecord, TokenKind, TokenOptions
from tpuctl.data.order import Members
from tpuctl.data.schema.features import Feature, Other, Tensor, Text, example_kinds
from tpuctl.data.source import Indices, Observations, Part, Records, ScanProgress, Source, evenly_spaced
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.example_encoding import Encoder, Value, packed_ints
from tpuctl.errors import UsageError, nearest

LONGEST = 100
"""Characters of a word; a longer one is unknown, as in BERT."""
MOST_COUNTED = 1 << 19
"""Different words that are counted at the same time, some 80 MB in memory."""
MOST_WORDS = 100_000
"""Words that pieces are learnt from, the most frequent ones: more do not change which pieces are frequent."""
MOST_CHARACTERS = 1_000
"""Different characters, the most frequent ones: words with others have no pieces."""
_MOST_CACHED = 1 << 16
"""Words whose ids are cached: most texts consist of few different words."""
_INSIDE = "##"
"""Stands before a piece that does not begin a word."""
_ALONE = re.compile(
    "[$+<=>^`|~"  # punctuation in BERT, though not in Unicode
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)
"""Characters that are words by themselves; ideographs are written without blanks between words."""


class WordSplitter(dict[int, str | None]):
    """Splits texts into words; the replacement of each character is computed at its first use."""

    def __init__(self, *, cased: bool) -> None:
        """With `cased`, letters stay as they are; else they are made small, and lose their accents."""
        super().__init__()
        self._cased = cased
        self._removed = ("Cc", "Cf", "Co", "Cs") if cased else ("Cc", "Cf", "Co", "Cs", "Mn")

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text in order; may be used by several threads."""
        if self._cased:
            return text.translate(self).split()
        plain = text if text.isascii() else normalize("NFD", text)
        return plain.translate(self).lower().split()

    def __missing__(self, code: int) -> str | None:
        self[code] = replacement = self._replacement(chr(code))
        return replacement

    def _replacement(self, character: str) -> str | None:
        kind = category(character)
        if character in "\t\n\r" or (character.isspace() and kind != "Cc"):
            return " "
        if character == "\ufffd" or kind in self._removed:
            return None
        return f" {character} " if kind[0] == "P" or _ALONE.match(character) else character


class WordCounts:
    """Counts words; at more than `most` different ones the rarest are dropped, and counted again from 0."""

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self._counts: Counter[str] = Counter()
        self._most = most

    def add(self, words: Iterable[str]) -> None:
        """Count the words of one text."""
        self._counts.update([word for word in words if len(word) <= LONGEST])
        if (
            len(self._counts) > self._most
        ):  # at least half are dropped: those no more frequent than the median
            rarest = sorted(self._counts.values())[len(self._counts) // 2]
            self._counts = Counter({word: count for word, count in self._counts.items() if count > rarest})

    def by_frequency(self) -> list[tuple[str, int]]:
        """Return words and counts, the most frequent first; those of the same count by their characters."""
        return sorted(self._counts.items(), key=_frequency)


def _frequency(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def learn_pieces(words: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return at most so many pieces, from words and counts in the order of `WordCounts.by_frequency`.

    First the characters, then the pieces in the order in which they were learnt. Raises UsageError where
    `most` would not even hold the characters.
    """
    words = words[:MOST_WORDS]
    characters: Counter[str] = Counter()
    for word, count in words:
        for character in word:
            characters[character] += count
    usual = {character for character, _ in sorted(characters.items(), key=_frequency)[:MOST_CHARACTERS]}
    usable = [(word, count) for word, count in words if usual.issuperset(word)]
    split = [[word[0], *(_INSIDE + character for character in word[1:])] for word, _ in usable]
    pieces = dict.fromkeys(sorted({*chain(*split)}, key=lambda piece: (len(piece) > 1, piece)))
    if len(pieces) > most:
        raise UsageError(
            f"The characters of the texts alone are {len(pieces)} entries, and there is room for {most}.",
            hint="Ask for a larger --vocabulary.",
            characters=len(pieces),
        )
    for piece in _merges(split, [count for _, count in usable]):
        if len(pieces) == most:
            break
        pieces[piece] = None  # again, where both a+bc and ab+c make abc
    return list(pieces)


def _merges(words: list[list[str]], weights: Sequence[int]) -> Iterator[str]:
    """Join the pair of pieces that occurs most often in the `words`, again and again; yield what it becomes.

    Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units" (2016). Of pairs
    that occur as often, the first in the order of their characters is taken: the same words always give the
    same pieces. A pair is joined when the next is requested.
    """
    counts: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for number, pieces in enumerate(words):
        for pair in pairwise(pieces):
            counts[pair] += weights[number]
            places[pair].add(number)
    waiting = [(-count, pair) for pair, count in counts.items()]
    heapify(waiting)
    while waiting:
        count, pair = heappop(waiting)
        if counts[pair] != -count:  # other merges have used up pieces of the pair since it was queued
            if counts[pair]:
                heappush(waiting, (-counts[pair], pair))
            continue
        joined = pair[0] + pair[1].removeprefix(_INSIDE)
        yield joined
        grown = set()
        for number in places.pop(pair):
            for before in pairwise(words[number]):
                counts[before] -= weights[number]
                places[before].discard(number)
            words[number] = _joined(words[number], pair, joined)
            for after in pairwise(words[number]):
                counts[after] += weights[number]
                places[after].add(number)
                if joined in after:
                    grown.add(after)
        for after in grown:
            heappush(waiting, (-counts[after], after))


def _joined(pieces: Sequence[str], pair: tuple[str, str], joined: str) -> list[str]:
    after: list[str] = []
    for piece in pieces:
        if after and (after[-1], piece) == pair:
            after[-1] = joined
        else:
            after.append(piece)
    return after


class TokenEncoder:
    """Makes vectors of ids; may be used by several threads."""

    def __init__(self, kind: TokenKind, vocabulary: Vocabulary, length: int) -> None:
        self._split = WordSplitter(cased=vocabulary.cased)
        self._of_word = _WordIds(vocabulary.ids, whole=kind == "words")
        ends = (START, END) if kind == "wordpiece" else ()
        self._ends = [vocabulary.ids[token] for token in ends]
        self._padding = vocabulary.ids[PAD]
        self._length = length

    def __call__(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text: cut at the end, or padded there; pieces are between [CLS] and [SEP]."""
        room = self._length - len(self._ends)
        ids: list[int] = []
        for word in self._split(text):
            if len(ids) >= room:
                break
            ids += self._of_word[word]
        ids = [*self._ends[:1], *ids[:room], *self._ends[1:]]
        vector = np.full(self._length, self._padding, np.int64)
        vector[: len(ids)] = ids
        return vector


class _WordIds(dict[str, list[int]]):
    """The ids of words, computed at first use, and cached while they are few."""

    def __init__(self, ids: Mapping[str, int], *, whole: bool) -> None:
        super().__init__()
        self._ids = ids
        self._unknown = [ids[UNKNOWN]]
        self._whole = whole

    def __missing__(self, word: str) -> list[int]:
        ids = [self._ids[word]] if self._whole and word in self._ids else self._pieces(word)
        if len(self) < _MOST_CACHED and len(word) <= LONGEST:
            self[word] = ids
        return ids

    def _pieces(self, word: str) -> list[int]:
        """Return the longest pieces, from the beginning on; a word with a rest is unknown."""
        if self._whole or len(word) > LONGEST:
            return self._unknown
        ids: list[int] = []
        start = 0
        while start < len(word):
            before = _INSIDE if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in self._ids), 0)
            if not end:
                return self._unknown
            ids.append(self._ids[before + word[start:end]])
            start = end
        return ids


FILE = "vocabulary.txt"
"""Its name in a dataset."""
PAD, UNKNOWN, START, END, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL: dict[TokenKind, tuple[str, ...]] = {
    "words": (PAD, UNKNOWN),
    "wordpiece": (PAD, UNKNOWN, START, END, MASK),
}
"""Tokens that stand for no text: the first ones of every vocabulary that tpuctl learns."""
NEEDED: dict[TokenKind, tuple[str, ...]] = {
    "words": (PAD, UNKNOWN),
    "wordpiece": (PAD, UNKNOWN, START, END),
}
"""Those that a user's vocabulary must have, at any place; the padding is the first."""
MOST = 1_000_000
"""Entries that a vocabulary may have."""
_LARGEST = 64 << 20


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids, from 0 on; may be pickled."""

    tokens: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @property
    def cased(self) -> bool:
        """Whether any token has a capital letter, but for those in brackets: then texts keep theirs."""
        return any(
            token != token.lower() and not (token[0] == "[" and token[-1] == "]") for token in self.tokens
        )

    @property
    def content(self) -> bytes:
        """The file: UTF-8, one token a line."""
        return "".join(f"{token}\n" for token in self.tokens).encode()

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal, of the file."""
        return sha256(self.content).hexdigest()

    def text(self, ids: Sequence[int]) -> str:
        """Return tokens as people read them: pieces joined to words, without the padding."""
        padding = self.ids[PAD]
        tokens = [self.tokens[id_] if 0 <= id_ < len(self) else UNKNOWN for id_ in ids if id_ != padding]
        return " ".join(tokens).replace(" ##", "")


def read_vocabulary(path: Path, kind: TokenKind) -> Vocabulary:
    """Return the vocabulary in a file, as the presets of BERT have it (`vocab.txt`); raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise unreadable(str(path), error) from error
    if len(data) > _LARGEST:
        raise _wrong(path, "is larger than 67.1 MB, which is no vocabulary")
    return parse_vocabulary(data, kind, path)


def parse_vocabulary(data: bytes, kind: TokenKind, path: Path) -> Vocabulary:
    """Return the vocabulary that `data` holds; raises UsageError that names `path` and the line."""
    try:
        lines = data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _wrong(path, "is not UTF-8 text", line=data.count(b"\n", 0, error.start) + 1) from error
    tokens = tuple(line.removesuffix("\r") for line in lines)
    lines_of: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if not token:
            raise _wrong(path, "has no token", line=line)
        if token in lines_of:
            raise _wrong(path, f"has the token '{token}' again, of line {lines_of[token]}", line=line)
        lines_of[token] = line
    if missing := [token for token in NEEDED[kind] if token not in lines_of]:
        raise _wrong(path, f"lacks {' and '.join(missing)}")
    if tokens[0] != PAD:
        raise _wrong(path, f"has the token '{tokens[0]}', and the first is {PAD}: the id 0 pads", line=1)
    if len(tokens) > MOST:
        raise _wrong(path, f"has {len(tokens)} tokens, and at most {MOST} can be used")
    return Vocabulary(tokens)


def _wrong(path: Path, why: str, *, line: int = 0) -> UsageError:
    where = f"Line {line} of the vocabulary '{path}'" if line else f"The vocabulary '{path}'"
    return UsageError(
        f"{where} {why}.",
        hint="One token a line, as in the vocab.txt of BERT's presets; or give a number, to learn one.",
        file=str(path),
        line=line,
    )


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
