"""Counts words in a table of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

MOST = 1 << 19
"""Different words that are counted at the same time, some 80 MB in memory."""
LONGEST = 100
"""Characters of a word; a longer one is unknown, as in BERT."""


class WordCounts:
    """Counts words; at more than `MOST` different ones the rarest are dropped, and counted again from 0."""

    def __init__(self, most: int = MOST) -> None:
        self._counts: Counter[str] = Counter()
        self._most = most

    def add(self, words: Iterable[str]) -> None:
        """Count the words of one text."""
        self._counts.update([word for word in words if len(word) <= LONGEST])
        if len(self._counts) > self._most:
            self._drop()

    def by_frequency(self) -> list[tuple[str, int]]:
        """Return words and counts, the most frequent first; those of the same count by their characters."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))

    def _drop(self) -> None:
        """Drop at least half: all words that are no more frequent than the median."""
        rarest = sorted(self._counts.values())[len(self._counts) // 2]
        self._counts = Counter({word: count for word, count in self._counts.items() if count > rarest})
