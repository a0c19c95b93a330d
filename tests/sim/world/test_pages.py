"""Pages of lists: their size, their order, and the token of the next."""

from __future__ import annotations

import pytest

from tpuctl.sim.world.api_errors import ApiError
from tpuctl.sim.world.resources import page

NAMES = [f"n{number:04}" for number in range(1005)]


@pytest.mark.parametrize(
    ("size", "shown"), [(0, 1000), (1, 1), (999, 999), (1000, 1000), (1001, 1000), (5000, 1000)]
)
def test_a_page_has_up_to_a_thousand(size: int, shown: int) -> None:
    listed, token = page(reversed(NAMES), str, size, "")
    assert listed == NAMES[:shown]
    assert page(NAMES, str, 1, token)[0] == [NAMES[shown]]


@pytest.mark.parametrize(("size", "more"), [(4, True), (5, False), (6, False)])
def test_the_last_page_has_no_token(size: int, more: bool) -> None:
    listed, token = page(NAMES[:5], str, size, "")
    assert (len(listed), bool(token)) == (min(size, 5), more)
    assert page([], str, size, "") == ([], "")


def test_a_page_goes_on_after_the_last_name() -> None:
    token = page(["a", "é", "z"], str, 2, "")[1]
    assert page(["a", "z", "é1"], str, 2, token) == (["é1"], "")
    assert page(["b", "c"], lambda name: f"projects/{name}", 1, "")[1]


@pytest.mark.parametrize("size", [-1, -1000])
def test_no_page_has_less_than_nothing(size: int) -> None:
    with pytest.raises(ApiError, match=f"^Invalid page_size {size}\\.$") as raised:
        page(NAMES, str, size, "")
    assert int(raised.value.status.code) == 3


@pytest.mark.parametrize("token", ["!", "a", "/w==", "YQ", "a b"])
def test_a_token_that_nobody_gave_out_is_refused(token: str) -> None:
    with pytest.raises(ApiError) as raised:
        page(NAMES, str, 1, token)
    assert raised.value.status.message == f"Invalid page_token '{token}'."
