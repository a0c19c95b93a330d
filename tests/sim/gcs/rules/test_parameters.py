"""Numbers and flags of requests: what they may be, and what is said of others."""

from __future__ import annotations

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import is_true, parse_number


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1", 1), (7, 7), (" 5 ", 5), (str(2**63 - 1), 2**63 - 1)]
)
def test_a_number_has_63_bits(text: object, number: int) -> None:
    assert parse_number("generation", text) == number


@pytest.mark.parametrize("text", ["-1", str(2**63), "", "x", "1.5", None, [1], "9" * 5000])
def test_another_text_is_refused_with_its_name(text: object) -> None:
    with pytest.raises(GcsError) as raised:
        parse_number("generation", text)
    assert (raised.value.status, raised.value.message) == (
        400,
        f"Invalid value for parameter generation: {text}",
    )


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_a_flag_is_true_in_any_letters(text: str) -> None:
    assert is_true(text)


@pytest.mark.parametrize("text", [None, "", "1", "yes", "false", "truex"])
def test_another_flag_is_false(text: str | None) -> None:
    assert not is_true(text)
