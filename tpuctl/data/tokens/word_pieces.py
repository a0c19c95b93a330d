"""Making a vocabulary of word pieces: characters, and what is written most often one after the other.

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
"""Words that pieces are made from, the most frequent ones: more do not change which pieces are frequent."""
MOST_CHARACTERS = 1_000
"""Different characters, the most frequent ones: words with others have no pieces."""

Pair = tuple[str, str]


def learn_pieces(words: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return at most so many pieces, from words and counts in the order of `WordCounts.in_order`.

    First the characters, then the pieces in the order in which they were found. Raises UsageError where
    `most` would not even hold the characters.
    """
    learner = _Learner(words[:MOST_WORDS])
    found = learner.alphabet
    if len(found) > most:
        raise UsageError(
            f"The characters of the texts alone are {len(found)} entries, and there is room for {most}.",
            hint="Ask for a larger --vocabulary.",
            characters=len(found),
        )
    known = set(found)
    for piece in learner.merges():
        if len(found) == most:
            break
        if piece not in known:  # should both a+bc and ab+c have been joined
            known.add(piece)
            found.append(piece)
    return found


class _Learner:
    """Words as pieces, and how often which two follow one another."""

    def __init__(self, words: Sequence[tuple[str, int]]) -> None:
        kept = _frequent_characters(words)
        usable = [(word, count) for word, count in words if kept.issuperset(word)]
        self._words = [[word[0], *(INSIDE + one for one in word[1:])] for word, _ in usable]
        self._weights = [count for _, count in usable]
        self._counts: Counter[Pair] = Counter()
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for number, pieces in enumerate(self._words):
            self._note(number, pairwise(pieces))
        self.alphabet = sorted(
            {piece for pieces in self._words for piece in pieces}, key=_first_the_beginnings
        )

    def merges(self) -> Iterator[str]:
        """Yield the piece that each step makes; a step takes place when the next is asked for."""
        waiting = [(-count, pair) for pair, count in self._counts.items()]
        heapify(waiting)
        while waiting:
            count, pair = heappop(waiting)
            now = self._counts[pair]
            if now != -count:  # other pairs have taken pieces away since it was put there
                if now:
                    heappush(waiting, (-now, pair))
                continue
            yield _joined(pair)
            for one in self._merge(pair):
                heappush(waiting, (-self._counts[one], one))

    def _merge(self, pair: Pair) -> set[Pair]:
        """Join a pair wherever it occurs; return the pairs that came about."""
        piece, grown = _joined(pair), set()
        for number in self._places.pop(pair):
            before = self._words[number]
            after = _replaced(before, pair, piece)
            self._words[number] = after
            self._forget(number, pairwise(before))
            self._note(number, pairwise(after))
            grown |= {one for one in pairwise(after) if piece in one}
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
        for one in word:
            counts[one] += count
    return set(sorted(counts, key=lambda one: (-counts[one], one))[:MOST_CHARACTERS])


def _first_the_beginnings(piece: str) -> tuple[bool, str]:
    return len(piece) > 1, piece


def _joined(pair: Pair) -> str:
    return pair[0] + pair[1].removeprefix(INSIDE)


def _replaced(pieces: Sequence[str], pair: Pair, piece: str) -> list[str]:
    found: list[str] = []
    place = 0
    while place < len(pieces):
        if tuple(pieces[place : place + 2]) == pair:
            found.append(piece)
            place += 2
        else:
            found.append(pieces[place])
            place += 1
    return found
