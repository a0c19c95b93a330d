"""A sample has as many records as it may, in their order, and reads none after its last."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tpuctl.data.order import Sample, sample_of

RECORDS = [bytes([number]) for number in range(8)]


@pytest.mark.parametrize("most", [None, 8, 9])
def test_a_sample_of_all_is_all(most: int | None) -> None:
    sample = sample_of(8, most, 0)
    assert sample.places is None
    assert list(sample.filter(iter(RECORDS))) == RECORDS
    assert [sample.place(number) for number in (0, 7)] == [0, 7]


@pytest.mark.parametrize("most", [1, 3, 7])
def test_a_part_is_in_the_order_of_the_records_and_another_by_another_seed(most: int) -> None:
    sample = sample_of(8, most, 0)
    assert sample.places is not None
    places = sample.places.tolist()
    assert places == sorted(set(places))
    assert len(places) == most
    assert [sample.place(number) for number in range(most)] == places
    assert list(sample.filter(iter(RECORDS))) == [RECORDS[place] for place in places]
    assert sample_of(8, most, 0).places.tolist() == places  # type: ignore[union-attr]
    others = [sample_of(1_000, most, seed).places.tolist() for seed in (0, 1)]  # type: ignore[union-attr]
    assert others[0] != others[1]


@pytest.mark.parametrize(("places", "read"), [([2, 5], 6), ([0], 1), ([7], 8), ([], 1)])
def test_no_record_is_read_after_the_last_of_them(places: list[int], read: int) -> None:
    taken: list[int] = []

    def records() -> Iterator[bytes]:
        for number, record in enumerate(RECORDS):
            taken.append(number)
            yield record

    sample = Sample(np.array(places, np.int64))
    assert list(sample.filter(records())) == [RECORDS[place] for place in places]
    assert len(taken) == read
