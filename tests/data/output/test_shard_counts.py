from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.output.shards import (
    DEFAULT_SIZE,
    MAX_SIZE,
    MIN_SIZE,
    bounds,
    choose_count,
    fixed_count,
    readable_size,
    shard_file,
)
from tpuctl.errors import UsageError


@given(
    st.integers(1, 10**7),
    st.integers(0, 10**13),
    st.sampled_from([1, 2, 4, 16, 64]),
    st.integers(MIN_SIZE, MAX_SIZE),
)
def test_the_count_is_a_multiple_of_the_hosts_within_records_and_bounds(
    records: int, size: int, hosts: int, target: int
) -> None:
    count = choose_count(records, size, hosts=hosts, target=target).count
    assert 1 <= count <= records
    if records >= hosts:
        assert count % hosts == 0
    if count + hosts <= records and count > hosts:
        assert size / count >= MIN_SIZE or size / (count - hosts) > MAX_SIZE
    if count + hosts <= records:
        assert size / count <= MAX_SIZE


@pytest.mark.parametrize(
    ("records", "size", "hosts", "count", "why"),
    [
        (1_797, 500_000, 1, 1, "500 kB in one file"),
        (1_797, 500_000, 4, 4, "one for each of the 4 hosts, 125 kB each"),
        (10_000, 1_030_000_000, 1, 10, "103 MB each, near the target of 100 MB"),
        (10_000, 1_030_000_000, 4, 12, "85.8 MB each, near the target of 100 MB, a multiple of the 4 hosts"),
        (3, 900, 4, 3, "one record each; some of the 4 hosts will read nothing"),
        (7, 10_000_000_000, 4, 4, "at most the 7 records, and the same for each host"),
    ],
)
def test_the_count_comes_with_its_reason(records: int, size: int, hosts: int, count: int, why: str) -> None:
    chosen = choose_count(records, size, hosts=hosts, target=DEFAULT_SIZE)
    assert (chosen.count, chosen.why) == (count, why)


@given(st.integers(1, 10**9), st.data())
def test_shards_differ_by_one_record_at_most_and_leave_none_out(records: int, data: st.DataObject) -> None:
    starts = bounds(records, data.draw(st.integers(1, min(records, 300))))
    lengths = [stop - start for start, stop in pairwise(starts)]
    assert max(lengths) - min(lengths) <= 1
    assert (starts[0], starts[-1]) == (0, records)


@pytest.mark.parametrize(
    ("shards", "hosts", "message"),
    [
        (0, 1, "A split cannot have 0 shards"),
        (6, 4, "6 shards cannot be shared evenly by 4 hosts"),
        (12, 1, "The split 'test' has 10 records, fewer than 12 shards"),
    ],
)
def test_a_count_that_cannot_be_is_refused(shards: int, hosts: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        fixed_count(shards, 10, hosts=hosts, split="test")
    assert caught.value.hint


def test_files_are_named_as_tfds_names_them() -> None:
    assert shard_file("digits", "train", 3, 16) == "digits-train.tfrecord-00003-of-00016"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_000, "999 kB"),
        (1_000_000, "1 MB"),
        (67_108_864, "67.1 MB"),
        (999_000_000, "999 MB"),
        (1_000_000_000, "1 GB"),
        (150_000_000_000, "150 GB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(size: int, text: str) -> None:
    assert readable_size(size) == text


@pytest.mark.parametrize(
    ("records", "size", "hosts", "count", "why"),
    [
        (10, 5_000_000, 1, 1, "5 MB in one file"),
        (1000, 1_000_000_000, 1, 10, "100 MB each, near the target of 100 MB"),
        (1000, 400_000_000, 4, 4, "one for each of the 4 hosts, 100 MB each"),
        (1000, 1_600_000_000, 4, 16, "100 MB each, near the target of 100 MB, a multiple of the 4 hosts"),
        (3, 400_000_000, 4, 3, "one record each; some of the 4 hosts will read nothing"),
        (10, 1_600_000_000, 4, 8, "at most the 10 records, and the same for each host"),
    ],
)
def test_the_reason_for_a_count_is_in_words(
    records: int, size: int, hosts: int, count: int, why: str
) -> None:
    chosen = choose_count(records, size, hosts=hosts)
    assert (chosen.count, chosen.why) == (count, why)


def test_bounds_and_target_are_those_of_tfds_and_tensorflows_guide() -> None:
    assert (MIN_SIZE, MAX_SIZE, DEFAULT_SIZE) == (67_108_864, 1_073_741_824, 100_000_000)
