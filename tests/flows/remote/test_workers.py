"""Which workers a text means, on a node that has them or not."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import node
from tpuctl.errors import NotFoundError, UsageError
from tpuctl.flows.remote.targets import (
    ALL_WORKERS,
    HostName,
    chosen_workers,
    only_worker,
    parse_host_name,
    parse_workers,
    worker_of_entry,
)

FOUR = node("n4", addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"))


@pytest.mark.parametrize(
    ("text", "workers"),
    [("all", (0, 1, 2, 3)), ("0", (0,)), ("1,3", (1, 3)), ("0-2", (0, 1, 2)), (" 3 , 1-1, 1 ", (1, 3))],
)
def test_a_set_of_workers_is_ascending_and_names_each_once(text: str, workers: tuple[int, ...]) -> None:
    assert parse_workers(text).select(FOUR) == workers


@pytest.mark.parametrize(
    "text", ["", ",", "x", "-1", "1-", "3-1", "1,,2", "0x1", "1.0", "ALL", "all,1", "\u0661", "1" * 5000]
)
def test_any_other_text_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="names no workers") as error:
        parse_workers(text)
    assert "0-3,7" in error.value.hint


@pytest.mark.parametrize(("text", "missing"), [("4", 4), ("0,9", 9), ("2-999999", 4), ("7-9", 7)])
def test_a_worker_that_is_not_there_is_named_with_those_that_are(text: str, missing: int) -> None:
    with pytest.raises(NotFoundError, match=rf"^'n4' has no worker {missing}: its workers are 0 to 3\.$"):
        parse_workers(text).select(FOUR)


def test_a_node_of_one_host_says_so() -> None:
    with pytest.raises(NotFoundError, match=r"^'n1' has no worker 1: its workers are 0 only\.$"):
        only_worker(1).select(node())


def test_a_host_is_named_by_its_node_and_its_worker() -> None:
    assert parse_host_name("n1") == HostName("n1")
    assert parse_host_name("n1@3") == HostName("n1", only_worker(3))
    assert parse_host_name("n1@all") == HostName("n1", ALL_WORKERS)


@pytest.mark.parametrize("text", ["", "@", "@3", "n1@"])
def test_half_a_host_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no host"):
        parse_host_name(text)


def test_workers_are_named_by_the_name_or_by_the_option_but_not_twice() -> None:
    assert chosen_workers(parse_host_name("n1"), None, only_worker(0)) == only_worker(0)
    assert chosen_workers(parse_host_name("n1@3"), None, only_worker(0)) == only_worker(3)
    assert chosen_workers(parse_host_name("n1"), "all", only_worker(0)) == ALL_WORKERS
    with pytest.raises(UsageError, match="named twice"):
        chosen_workers(parse_host_name("n1@3"), "3", only_worker(0))


@pytest.mark.parametrize(
    ("host", "worker"),
    [
        ("n1", 0), ("n1.w3", 3), ("n1.tpuctl", 0), ("n1.w12.sim.tpuctl", 12), ("n1.sim.tpuctl", 0), ("2", 2),
        ("n1.z-1.tpuctl", 0), ("n1.z-1.w3.sim.tpuctl", 3),
    ],
)  # fmt: skip
def test_a_name_of_an_entry_means_a_worker(host: str, worker: int) -> None:
    assert worker_of_entry("n1", host, "z-1") == only_worker(worker)
    if "z-1" not in host:
        assert worker_of_entry("n1", host, "") == only_worker(worker)


def test_a_name_of_another_entry_means_none() -> None:
    for host in ("other.w1.tpuctl", "n1-w1.tpuctl", "n1.z-2.w1.tpuctl"):
        with pytest.raises(UsageError):
            worker_of_entry("n1", host, "z-1")
