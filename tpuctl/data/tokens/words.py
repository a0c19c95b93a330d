"""Splits texts into words, learns vocabularies, and looks up ids, as BERT's own tokenizer does.

Devlin et al., "BERT" (2018), `BasicTokenizer` and `WordpieceTokenizer`. Hugging Face's `tokenizers` 0.23.3 is
not used, as it learns another vocabulary of the same text in each process: `tokenize_words` of its BpeTrainer
numbers the `##` characters in the order of a hash map. Conversions with it take longer, too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from unicodedata import category, normalize

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.options import TokenKind
from tpuctl.data.tokens.vocabulary import END, PAD, START, UNKNOWN, Vocabulary
from tpuctl.errors import UsageError

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
