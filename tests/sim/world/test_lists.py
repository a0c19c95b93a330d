"""Which resources a filter of a list lets through, and which texts are no filter.

Pages of lists: their size, their order, and the token of the next.
"""

from __future__ import annotations

import pytest

from tpuctl.sim.world.api_errors import ApiError, Code
from tpuctl.sim.world.resources import matcher, page

ENTRY = {
    "state": "READY",
    "id": 7,
    "labels": {"team": "deep vision", "empty": ""},
    "networkConfig": {"enableExternalIps": True, "canIpForward": False},
    "health": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("   ", True),
        ("state=READY", True),
        ("  state = READY  ", True),
        ("state=ready", False),
        ("state=READ", False),
        ("state:READ", True),
        ("state:READ*", True),
        ("state:EAD", True),
        ("state:READYX", False),
        ("state:X*", False),
        ("state!=READY", False),
        ("state!=STOPPED", True),
        ("NOT state=READY", False),
        ("NOT state=STOPPED", True),
        ("-state=READY", False),
        ("-state=STOPPED", True),
        ("-state!=READY", True),
        ("id=7", True),
        ('labels.team="deep vision"', True),
        ('labels.team:"p v"', True),
        ("labels.team=deep", False),
        ("state=READY AND labels.team:vision", True),
        ("state=STOPPED AND labels.team:vision", False),
        ("state=READY labels.team=other", False),
        ('labels.team="deep vision"state=READY', True),
        ('labels.team="deep vision"state=STOPPED', False),
        ("network_config.enable_external_ips=true", True),
        ("networkConfig.enableExternalIps=True", False),
        ("networkConfig.canIpForward=false", True),
        ("missing=1", False),
        ("missing!=1", True),
        ('missing=""', True),
        ('missing.deeper=""', True),
        ('state.deeper=""', True),
        ("state.deeper=READY", False),
        ('health=""', True),
        ("health=None", False),
        ('labels.empty=""', True),
    ],
)
def test_a_filter_matches_a_resource_or_does_not(text: str, expected: bool) -> None:
    assert matcher(text)(ENTRY) is expected


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("state", "state"),
        ("(state=READY)", "(state=READY)"),
        ("=READY", "=READY"),
        ('a="open', 'a="open'),
        ("a=1 OR b=2", "OR b=2"),
        ("OR=1", "OR=1"),
        ("AND=1", "AND=1"),
        ("a=1 AND b", "b"),
        ("a=1 AND ", ""),
        ("a=1 AND AND b=2", "AND b=2"),
    ],
)
def test_the_refusal_of_a_filter_says_where_it_is_not_understood(text: str, rest: str) -> None:
    with pytest.raises(ApiError) as raised:
        matcher(text)
    status = raised.value.status
    assert status.code == Code.INVALID_ARGUMENT
    assert status.message == f"Invalid filter: '{text}' is not understood at '{rest}'"


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
