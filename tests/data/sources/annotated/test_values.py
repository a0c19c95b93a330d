"""The values of records are stored in their order, and read in any."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tpuctl.data.sources.annotated import fields
from tpuctl.data.sources.annotated.fields import ValueStore


@pytest.fixture
def store() -> Iterator[ValueStore]:
    made = ValueStore()
    yield made
    made.close()


@pytest.mark.parametrize("batch", [4096, 1, 2, 3])
def test_values_are_read_in_any_order(store: ValueStore, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_BATCH", batch)
    records = [[1, "text"], [2.5, b"bytes"], [[1, 2], []], []]
    for record in records:
        store.add(record)
    store.finish()
    assert len(store) == 4
    assert store.read(np.array([3, 0, 2, 1, 0])) == [records[place] for place in (3, 0, 2, 1, 0)]


def test_an_order_says_which_of_the_added_is_which(store: ValueStore) -> None:
    for number in range(4):
        store.add([number])
    store.finish(np.array([2, 0, 3]))
    assert store.read(np.array([0, 1, 2])) == [[2], [0], [3]]


def test_the_mean_size_is_that_of_what_is_stored(store: ValueStore) -> None:
    assert (len(store), store.mean_size) == (0, 0)
    for text in ("x" * 10, "x" * 20):
        store.add([text])  # MessagePack has a byte for the list, and one for a text
    assert store.mean_size == 17
