"""Deleting nodes of any provider."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.errors import DeadlineError, NotFoundError, StateError
from tpuctl.flows.nodes.down import down, plan_down, requests
from tpuctl.nodes import Change, HttpRequest


def test_without_names_the_users_own_nodes_are_meant() -> None:
    provider = MemoryProvider(node("n1"), node("n2", labels={}), node("n3"))
    assert [planned.name for planned in plan_down(provider, (), "ada")] == ["n1", "n3"]
    assert plan_down(provider, (), "bob") == []


def test_a_named_node_is_meant_whoever_created_it() -> None:
    provider = MemoryProvider(node("n1"), node("n2", labels={}))
    assert [planned.name for planned in plan_down(provider, ("n2",), "ada")] == ["n2"]


def test_a_missing_name_is_an_error_of_every_name_that_is_missing() -> None:
    with pytest.raises(NotFoundError, match="There is no node 'n2'") as missing:
        plan_down(MemoryProvider(node("n1")), ("n1", "n2", "n3"), "ada")
    assert missing.value.facts["nodes"] == ["n2", "n3"]


def test_a_zone_that_does_not_answer_may_have_the_missing_node() -> None:
    provider = MemoryProvider(node("n1"))
    provider.unreachable = ("us-east1-d",)
    assert [planned.name for planned in plan_down(provider, ("n1",), "ada")] == ["n1"]
    for names in ((), ("n2",)):
        with pytest.raises(DeadlineError, match="No answer from us-east1-d"):
            plan_down(provider, names, "ada")


def test_a_dry_run_shows_the_providers_requests() -> None:
    nodes = [node("n1"), node("n2")]
    assert requests(MemoryProvider(*nodes), nodes) == [
        HttpRequest("DeleteNode", "n1"),
        HttpRequest("DeleteNode", "n2"),
    ]


def test_every_node_is_deleted_and_reported() -> None:
    nodes = [node("n1"), node("n2")]
    provider, reports = MemoryProvider(*nodes), list[str]()
    down(provider, nodes, reports.append)
    assert provider.nodes == {}
    assert sorted(reports) == ["deleted n1", "deleted n2"]


@pytest.mark.parametrize("error", [NotFoundError("n1 does not exist."), StateError("n1 is being deleted.")])
def test_a_node_that_somebody_else_deletes_is_waited_for(error: StateError) -> None:
    class Overtaken(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            self.nodes.clear()
            raise error

    reports = list[str]()
    down(Overtaken(node()), [node()], reports.append)
    assert reports == ["deleted n1"]


class Unfinished(MemoryProvider):
    """Accepts a delete and never carries it out."""

    def __init__(self, *, operation_done: bool) -> None:
        super().__init__(node())
        self._operation_done = operation_done

    def begin(self, change: Change) -> Operation:
        return Operation("Node 'n1'", lambda: self._operation_done)


@pytest.mark.parametrize(("operation_done", "subject"), [(False, "Node"), (True, "node")])
def test_a_delete_is_given_fifteen_minutes(
    passing_time: PassingTime, operation_done: bool, subject: str
) -> None:
    reports = list[str]()
    with pytest.raises(DeadlineError) as timeout:
        down(Unfinished(operation_done=operation_done), [node()], reports.append)
    assert timeout.value.message == f"Waited 900 s for {subject} 'n1' to be deleted."
    assert timeout.value.hint == "Run 'tpuctl down' again."
    assert passing_time.now == pytest.approx(15 * 60)
    assert reports == []
