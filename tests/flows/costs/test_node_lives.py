"""When nodes billed: from their creation to their end, as far as the provider remembers it."""

from __future__ import annotations

from dataclasses import replace

from tests.flows.nodes.memory_provider import ZONE
from tests.flows.nodes.memory_provider import node as made
from tpuctl.errors import StateError
from tpuctl.flows.costs.report import NodeLife, lives, without
from tpuctl.nodes import History, Node, NodeState, PastChange

DAY = "2026-01-01T"
NOW = f"{DAY}20:00:00Z"


def at(hour: int) -> str:
    return f"{DAY}{hour:02}:00:00Z"


def node(uid: str, created: int, name: str = "n1", state: NodeState = NodeState.READY) -> Node:
    plain = made(name)
    return replace(plain, id=replace(plain.id, uid=uid), created=at(created), state=state)


def change(verb: str, hour: int, made_node: Node | None = None, name: str = "n1") -> PastChange:
    return PastChange(ZONE, name, verb, at(hour), at(hour), node=made_node)


def spans(existing: list[Node], *changes: PastChange) -> dict[str, list[tuple[str, str]]]:
    found = lives(existing, History(changes), NOW)
    return {life.node.id.uid: list(life.spans) for life in found}


def test_a_node_that_exists_bills_until_now() -> None:
    (life,) = lives([node("1", 10)], History(()), NOW)
    assert (life.spans, life.goes_on, life.open_since) == (((at(10), NOW),), True, "")


def test_one_that_is_stopped_does_not() -> None:
    stopped = node("1", 10, state=NodeState.STOPPED)
    assert spans([stopped], change("stop", 12)) == {"1": [(at(10), at(12))]}
    again = change("stop", 12), change("start", 15)
    assert spans([node("1", 10)], *again) == {"1": [(at(10), at(12)), (at(15), NOW)]}


def test_one_that_is_gone_billed_until_it_was_deleted_and_the_next_of_its_name_has_its_own_time() -> None:
    first, second = node("1", 10), node("2", 14)
    changes = [change("create", 10, first), change("delete", 12), change("create", 14, second)]
    assert spans([second], *changes) == {"1": [(at(10), at(12))], "2": [(at(14), NOW)]}
    both = {"1": [(at(10), at(12))], "2": [(at(14), at(15))]}
    assert spans([], *changes, change("delete", 15)) == both


def test_a_delete_that_failed_and_one_of_another_node_end_nothing() -> None:
    failed = replace(change("delete", 12), error=StateError("no"))
    other = change("delete", 12, name="n2")
    of_the_queue = replace(change("delete", 12), of_queued_resource=True)
    elsewhere = replace(change("delete", 12), zone="us-east1-d")
    for item in (failed, other, of_the_queue, elsewhere, change("delete", 9)):
        assert spans([node("1", 10)], item) == {"1": [(at(10), NOW)]}


def test_billing_begins_when_the_creation_is_done() -> None:
    slow = replace(change("create", 10, node("1", 10)), ended=at(11))
    assert spans([node("1", 10)], slow) == {"1": [(at(11), NOW)]}


def test_of_one_whose_end_nobody_remembers_the_time_up_to_the_last_run_counts() -> None:
    (life,) = lives([node("1", 10, state=NodeState.PREEMPTED)], History(()), NOW)
    assert (life.spans, life.open_since, life.goes_on) == ((), at(10), False)
    assert life.billed([(at(12), at(13)), (at(15), at(16))]) == [(at(10), at(16))]
    assert life.billed([]) == []
    assert life.billed([(at(8), at(9))]) == [], "of another node: its clock is wrong"


def test_time_that_two_runs_share_or_touch_is_not_idle() -> None:
    life = NodeLife(node("1", 10), ((at(10), at(14)), (at(15), at(18))))
    used = [(at(9), at(11)), (at(12), at(16)), (at(13), at(14)), (at(16), at(17))]
    assert list(without(life.billed(used), used)) == [(at(11), at(12)), (at(17), at(18))]
    assert list(without(life.spans, [(at(1), at(23))])) == []
    assert list(without(life.spans, [])) == list(life.spans)
