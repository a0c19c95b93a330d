from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.order import Permutation


@given(st.integers(1, 3000), st.integers(0, 2**64))
def test_every_place_is_taken_once(size: int, seed: int) -> None:
    permuted = Permutation(size, seed, "shard")(np.arange(size))
    assert sorted(permuted.tolist()) == list(range(size))


def test_the_order_is_this_one_for_ever() -> None:
    """A record is in the same shard with every version of Python and NumPy."""
    assert Permutation(10, 0, "shard")(np.arange(10)).tolist() == TEN
    assert Permutation(10**8, 7, "shard")(np.array([0, 1, 99_999_999])).tolist() == HUNDRED_MILLION


@pytest.mark.parametrize("other", [Permutation(1000, 1, "shard"), Permutation(1000, 0, "split")])
def test_seed_and_purpose_make_another_order(other: Permutation) -> None:
    places = np.arange(1000)
    assert np.count_nonzero(other(places) == Permutation(1000, 0, "shard")(places)) < 20


def test_neighbours_end_up_far_apart() -> None:
    """Of 8 shards each gets about an eighth of any run of records: within six standard deviations."""
    size, shards = 80_000, 8
    shard = np.empty(size, np.int64)
    shard[Permutation(size, 0, "shard")(np.arange(size))] = np.arange(size) * shards // size
    counts = np.bincount(shard[:8000], minlength=shards)
    assert np.all(np.abs(counts - 1000) < 6 * np.sqrt(8000 * 7 / 64 * 0.9))
    assert 0.1 < np.mean(shard[1:] == shard[:-1]) < 0.15


TEN = [4, 0, 5, 7, 3, 2, 9, 6, 8, 1]
HUNDRED_MILLION = [3903529, 19856264, 80737505]
