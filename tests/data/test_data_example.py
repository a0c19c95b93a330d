from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.example import Value, decode, encode
from tpuctl.errors import UsageError

LISTS = st.one_of(
    st.lists(st.binary(max_size=50), min_size=1, max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5),
)


@given(st.dictionaries(st.text(max_size=10), LISTS, max_size=5))
def test_what_is_encoded_decodes(values: dict[str, Value]) -> None:
    assert decode(encode(values)) == values


def test_single_values_and_texts_become_lists() -> None:
    record = encode({"name": "größe", "label": 3, "weight": 0.5, "flag": True})
    assert decode(record) == {
        "flag": [1],
        "label": [3],
        "name": ["größe".encode()],
        "weight": [0.5],
    }


def test_the_order_of_the_names_does_not_change_the_bytes() -> None:
    names = [f"feature_{index}" for index in range(20)]
    assert encode(dict.fromkeys(names, 1)) == encode(dict.fromkeys(reversed(names), 1))


@pytest.mark.parametrize("value", [[], [1, 0.5], [None], [[1]]])
def test_a_value_without_one_type_is_refused_by_name(value: Value) -> None:
    with pytest.raises(TypeError, match="'label' needs values of one type"):
        encode({"label": value})


def test_bytes_that_are_no_example_are_a_clear_error() -> None:
    with pytest.raises(UsageError, match=r"not a tf\.train\.Example"):
        decode(b"\xff\xff\xff")
