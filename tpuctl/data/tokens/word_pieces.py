"""Learns a vocabulary of word pieces by joining the most frequent pairs of pieces.

Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units" (2016): beginning
with single characters, the pair of pieces that occurs most often becomes a piece, until there are enough. A
piece that does not begin a word is written with `##` before it, as BERT does. Of several pairs that occur as
often, the first in the order of their characters is taken: the same words always give the same pieces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from tpuctl.errors import UsageError

INSIDE = "##"
MOST_WORDS = 100_000
"""Words that pieces are learnt from, the most frequent ones: more do not change which pieces are frequent."""
MOST_CHARACTERS = 1_000
"""Different characters, the most frequent ones: words with others have no pieces."""

Pair = tuple[str, str]


def learn_pieces(words: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return at most so many pieces, from words and counts in the order of `WordCounts.by_frequency`.

    First the characters, then the pieces in the order in which they were learnt. Raises UsageError where
    `most` would not even hold the characters.
    """
    learner = _Learner(words[:MOST_WORDS])
    pieces = learner.alphabet
    if len(pieces) > most:
        raise UsageError(
            f"The characters of the texts alone are {len(pieces)} entries, and there is room for {most}.",
            hint="Ask for a larger --vocabulary.",
            characters=len(pieces),
        )
    learnt = set(pieces)
    for piece in learner.merges():
        if len(pieces) == most:
            break
        if piece not in learnt:  # both a+bc and ab+c make abc
            learnt.add(piece)
            pieces.append(piece)
    return pieces


class _Learner:
    """Words as pieces, and how often each pair of pieces occurs."""

    def __init__(self, words: Sequence[tuple[str, int]]) -> None:
        characters = _frequent_characters(words)
        usable = [(word, count) for word, count in words if characters.issuperset(word)]
        self._words = [[word[0], *(INSIDE + character for character in word[1:])] for word, _ in usable]
        self._weights = [count for _, count in usable]
        self._counts: Counter[Pair] = Counter()
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for number, pieces in enumerate(self._words):
            self._note(number, pairwise(pieces))
        self.alphabet = sorted(
            {piece for pieces in self._words for piece in pieces}, key=_first_the_beginnings
        )

    def merges(self) -> Iterator[str]:
        """Yield the piece of each merge; a merge takes place when the next piece is requested."""
        waiting = [(-count, pair) for pair, count in self._counts.items()]
        heapify(waiting)
        while waiting:
            count, pair = heappop(waiting)
            now = self._counts[pair]
            if now != -count:  # other merges have used up pieces of the pair since it was queued
                if now:
                    heappush(waiting, (-now, pair))
                continue
            yield _joined(pair)
            for grown in self._merge(pair):
                heappush(waiting, (-self._counts[grown], grown))

    def _merge(self, pair: Pair) -> set[Pair]:
        """Join a pair wherever it occurs; return the new pairs."""
        piece, grown = _joined(pair), set()
        for number in self._places.pop(pair):
            before = self._words[number]
            after = _replaced(before, pair, piece)
            self._words[number] = after
            self._forget(number, pairwise(before))
            self._note(number, pairwise(after))
            grown |= {neighbours for neighbours in pairwise(after) if piece in neighbours}
        return grown

    def _note(self, number: int, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._counts[pair] += self._weights[number]
            self._places[pair].add(number)

    def _forget(self, number: int, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._counts[pair] -= self._weights[number]
            self._places[pair].discard(number)


def _frequent_characters(words: Sequence[tuple[str, int]]) -> set[str]:
    counts: Counter[str] = Counter()
    for word, count in words:
        for character in word:
            counts[character] += count
    ordered = sorted(counts, key=lambda character: (-counts[character], character))
    return set(ordered[:MOST_CHARACTERS])


def _first_the_beginnings(piece: str) -> tuple[bool, str]:
    return len(piece) > 1, piece


def _joined(pair: Pair) -> str:
    return pair[0] + pair[1].removeprefix(INSIDE)


def _replaced(pieces: Sequence[str], pair: Pair, piece: str) -> list[str]:
    replaced: list[str] = []
    place = 0
    while place < len(pieces):
        if tuple(pieces[place : place + 2]) == pair:
            replaced.append(piece)
            place += 2
        else:
            replaced.append(pieces[place])
            place += 1
    return replaced
