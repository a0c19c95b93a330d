"""From a text to the ids of its tokens: always the same number of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.options import TokenKind
from tpuctl.data.tokens.basic_tokenizer import WordSplitter
from tpuctl.data.tokens.vocabulary import END, PAD, START, UNKNOWN, Vocabulary
from tpuctl.data.tokens.word_counts import LONGEST
from tpuctl.data.tokens.word_pieces import INSIDE

_MOST_KEPT = 1 << 16
"""Words whose ids are kept: most texts are made of few."""


class TokenEncoder:
    """Makes vectors of ids; may be used by several threads."""

    def __init__(self, kind: TokenKind, vocabulary: Vocabulary, length: int) -> None:
        self._split = WordSplitter(cased=vocabulary.cased)
        self._of_word = _Kept(_MAKERS[kind](vocabulary.ids))
        ends = (START, END) if kind == "wordpiece" else ()
        self._ends = [vocabulary.ids[one] for one in ends]
        self._padding = vocabulary.ids[PAD]
        self._length = length

    def __call__(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text: cut at the end, or padded there; pieces stand between [CLS] and [SEP]."""
        room = self._length - len(self._ends)
        found = self._first(self._split(text), room)
        ids = [*self._ends[:1], *found, *self._ends[1:]]
        vector = np.full(self._length, self._padding, np.int64)
        vector[: len(ids)] = ids
        return vector

    def _first(self, words: Iterable[str], room: int) -> list[int]:
        found: list[int] = []
        for word in words:
            if len(found) >= room:
                break
            found += self._of_word[word]
        return found[:room]


class _Kept(dict[str, tuple[int, ...]]):
    """The ids of words, worked out when they are first met, and kept while there are few of them."""

    def __init__(self, make: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> tuple[int, ...]:
        made = self._make(word)
        if len(self) < _MOST_KEPT and len(word) <= LONGEST:
            self[word] = made
        return made


def _whole(ids: Mapping[str, int]) -> Callable[[str], tuple[int, ...]]:
    return lambda word: (ids.get(word, ids[UNKNOWN]),)


def _pieces(ids: Mapping[str, int]) -> Callable[[str], tuple[int, ...]]:
    """The longest piece that fits, from the beginning on; where none fits the rest, the word is unknown."""

    def made(word: str) -> tuple[int, ...]:
        if len(word) > LONGEST:
            return (ids[UNKNOWN],)
        found: list[int] = []
        start = 0
        while start < len(word):
            before = INSIDE if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in ids), 0)
            if not end:
                return (ids[UNKNOWN],)
            found.append(ids[before + word[start:end]])
            start = end
        return tuple(found)

    return made


_MAKERS: dict[TokenKind, Callable[[Mapping[str, int]], Callable[[str], tuple[int, ...]]]] = {
    "words": _whole,
    "wordpiece": _pieces,
}
