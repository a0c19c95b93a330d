"""Words are counted in a table of bounded size, from which the rarest go."""

from __future__ import annotations

from tpuctl.data.tokens.word_counts import WordCounts


def test_the_most_frequent_come_first_and_the_same_by_their_characters() -> None:
    counts = WordCounts()
    counts.add(["b", "a", "c", "b"])
    counts.add([])
    counts.add(["c", "d", "b"])
    assert counts.by_frequency() == [("b", 3), ("c", 2), ("a", 1), ("d", 1)]


def test_a_word_of_more_than_100_characters_is_none() -> None:
    counts = WordCounts()
    counts.add(["x" * 100, "x" * 101])
    assert counts.by_frequency() == [("x" * 100, 1)]


def test_only_beyond_the_bound_the_rarest_half_goes_and_is_counted_again_from_0() -> None:
    counts = WordCounts(most=4)
    counts.add(["a"] * 5 + ["b"] * 4 + ["c"] * 2 + ["d"])
    assert len(counts.by_frequency()) == 4
    counts.add(["e"])
    assert counts.by_frequency() == [("a", 5), ("b", 4)]
    counts.add(["c", "d"])
    assert counts.by_frequency() == [("a", 5), ("b", 4), ("c", 1), ("d", 1)]
