"""Tests that a call refuses what Python alone would pass on: misspelt options, and texts for lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tpuctl
from tpuctl.errors import UsageError

Call = Callable[[Any], object]


@pytest.fixture
def closed(home: Path) -> Any:
    """A client that can ask nobody: what is wrong is refused before anything is sent."""
    client = tpuctl.Client(target="sim")
    client.close()
    return client


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda client: client.up("v3-8", spott=True), "There is no option 'spott'"),
        (lambda client: client.plan_up("v3-8", tll=60), "There is no option 'tll'"),
        (lambda client: client.submit("train.py", nmae="r1"), "There is no option 'nmae'"),
        (lambda client: client.upload("d", "rows.csv", vresion="1.0.0"), "There is no option 'vresion'"),
        (lambda client: client.submit("train.py", "--epochs 3"), "arguments is a list"),
        (lambda client: client.submit("train.py", ["--epochs", 3]), "arguments has 3, which is no text"),
        (lambda client: client.submit("train.py", include="more.py"), "include is a list"),
        (
            lambda client: client.submit("train.py", environment={"A": 1}),
            "the value of A is no text, but of type int",
        ),
        (lambda client: client.submit("train.py", secrets={"A": 1}), "secrets: the value of A is no text"),
        (lambda client: client.submit("train.py", busy="wait"), "'wait' is none of the values of busy"),
        (lambda client: client.submit("train.py", max_price=12.5), "max_price is a text"),
        (lambda client: client.up("v3-8", framework="torch"), "'torch' is none of the values of framework"),
        (lambda client: client.up("v3-8", zones="us-central1-a"), "zones is a list"),
        (lambda client: client.up("v3-8", ttl="2h"), "'2h' is no span of time"),
        (lambda client: client.up("v3-8", ttl=0), "--ttl 0s leaves no time"),
        (lambda client: client.up("v3-8", ttl=-60), "-60 is not from 0 seconds to a century"),
        (lambda client: client.up("v3-8", idle=float("inf")), "inf is not from 0 seconds"),
        (lambda client: client.up("v3-8", ttl=float("nan")), "nan is no span of time"),
        (lambda client: client.up("v3-8", max_cost=0), "--max-cost 0 pays for nothing"),
        (lambda client: client.up("v3-8", max_cost=-1), "max_cost is -1, and no amount"),
        (lambda client: client.up("v3-8", max_cost=float("inf")), "max_cost is inf, and no amount"),
        (lambda client: client.up("v3-8", max_cost="five"), "max_cost is 'five', and no amount"),
        (lambda client: client.cost(since=1e18), "is not from 0 seconds to a century"),
        (lambda client: client.runs(since=-1), "-1 is not from 0 seconds"),
        (lambda client: client.up("v3-8", slices=0), "slices is 0, and at least 1 is needed"),
        (lambda client: client.runs(limit=-1), "limit is -1"),
        (lambda client: client.runs(states="failed"), "states is a list"),
        (lambda client: client.runs(states=["fialed"]), "'fialed' is none of the values of states"),
        (lambda client: client.runs(datasets="digits"), "datasets is a list"),
        (lambda client: client.runs(tags="keep"), "tags is a list"),
        (lambda client: client.cost(by="users"), "'users' is none of the values of by"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(closed: Any, call: Call, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        call(closed)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda run: run.pull("out", only="logs"), "only is a list"),
        (lambda run: run.pull("out", only=["log"]), "'log' is none of the values of only"),
        (lambda run: run.resubmit("--lr 0.1"), "changes is a list"),
        (lambda run: run.resubmit(["--lr", 0.1]), "changes has 0.1, which is no text"),
        (lambda run: run.resubmit(environment={"A": 1}), "the value of A is no text"),
        (lambda run: run.logs(tail=-1), "tail is -1"),
        (lambda run: run.wait(timeout="1m"), "'1m' is no span of time"),
    ],
)
def test_a_handle_refuses_it_too(closed: Any, call: Call, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        call(tpuctl.Run(closed._context, "r1"))


def test_the_hint_names_the_nearest_option(closed: Any) -> None:
    with pytest.raises(UsageError) as caught:
        closed.up("v3-8", spott=True)
    assert caught.value.hint == "Did you mean spot?"
