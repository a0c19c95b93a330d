"""Encodes a text as a fixed number of token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.options import TokenKind
from tpuctl.data.tokens.basic_tokenizer import WordSplitter
from tpuctl.data.tokens.vocabulary import END, PAD, START, UNKNOWN, Vocabulary
from tpuctl.data.tokens.word_counts import LONGEST
from tpuctl.data.tokens.word_pieces import INSIDE

_MOST_CACHED = 1 << 16
"""Words whose ids are cached: most texts consist of few different words."""

_LookUp = Callable[[str], tuple[int, ...]]
"""Returns the ids of a word."""


class TokenEncoder:
    """Makes vectors of ids; may be used by several threads."""

    def __init__(self, kind: TokenKind, vocabulary: Vocabulary, length: int) -> None:
        self._split = WordSplitter(cased=vocabulary.cased)
        self._of_word = _IdCache(_LOOKUPS[kind](vocabulary.ids))
        ends = (START, END) if kind == "wordpiece" else ()
        self._ends = [vocabulary.ids[token] for token in ends]
        self._padding = vocabulary.ids[PAD]
        self._length = length

    def __call__(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text: cut at the end, or padded there; pieces are between [CLS] and [SEP]."""
        room = self._length - len(self._ends)
        first = self._first(self._split(text), room)
        ids = [*self._ends[:1], *first, *self._ends[1:]]
        vector = np.full(self._length, self._padding, np.int64)
        vector[: len(ids)] = ids
        return vector

    def _first(self, words: Iterable[str], room: int) -> list[int]:
        ids: list[int] = []
        for word in words:
            if len(ids) >= room:
                break
            ids += self._of_word[word]
        return ids[:room]


class _IdCache(dict[str, tuple[int, ...]]):
    """The ids of words, computed at first use, and cached while they are few."""

    def __init__(self, look_up: _LookUp) -> None:
        super().__init__()
        self._look_up = look_up

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._look_up(word)
        if len(self) < _MOST_CACHED and len(word) <= LONGEST:
            self[word] = ids
        return ids


def _whole(ids: Mapping[str, int]) -> _LookUp:
    return lambda word: (ids.get(word, ids[UNKNOWN]),)


def _pieces(ids: Mapping[str, int]) -> _LookUp:
    """Return a look-up of the longest pieces, from the beginning on; a word with a rest is unknown."""

    def look_up(word: str) -> tuple[int, ...]:
        if len(word) > LONGEST:
            return (ids[UNKNOWN],)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            before = INSIDE if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in ids), 0)
            if not end:
                return (ids[UNKNOWN],)
            pieces.append(ids[before + word[start:end]])
            start = end
        return tuple(pieces)

    return look_up


_LOOKUPS: dict[TokenKind, Callable[[Mapping[str, int]], _LookUp]] = {
    "words": _whole,
    "wordpiece": _pieces,
}
