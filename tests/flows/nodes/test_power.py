"""Tests stopping and starting a node with any provider: what is refused, and what is only waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, MemorySsh, node, queued_resource
from tests.flows.passing_time import PassingTime
from tpuctl import errors
from tpuctl.cloud.provider import Operation
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    HostError,
    InterruptedByUser,
    NotFoundError,
    PreemptedError,
    StateError,
    StockoutError,
    TpuctlError,
)
from tpuctl.flows.nodes.power import (
    plan_start,
    plan_stop,
    start,
    start_requests,
    stop,
    stop_requests,
)
from tpuctl.flows.progress import Report, silent
from tpuctl.nodes import Change, Node, NodeId, NodeState, SshKey, StartNode, StopNode

KEY = SshKey("ada", "ssh-ed25519 AAAA")
ID = node().id
COMMANDS = pytest.mark.parametrize("plan", [plan_stop, plan_start], ids=["stop", "start"])


@COMMANDS
@pytest.mark.parametrize(
    ("existing", "reason"),
    [
        (node(addresses=("10.0.0.1", "10.0.0.2")), "it has 2 hosts"),
        (node(queued_resource="q1"), "it belongs to a queued resource"),
        (node(spot=True), "it is a spot TPU"),
    ],
    ids=["several hosts", "queued", "spot"],
)
def test_what_can_only_be_deleted_is_refused_before_anything_is_sent(
    plan: object, existing: Node, reason: str
) -> None:
    with pytest.raises(StateError, match=reason) as error:
        plan(MemoryProvider(existing), "n1")  # type: ignore[operator]
    assert "tpuctl down n1" in error.value.hint


@COMMANDS
def test_a_queued_resource_without_nodes_is_refused(plan: object) -> None:
    provider = MemoryProvider()
    provider.queue["q1"] = queued_resource()
    with pytest.raises(StateError, match="belongs to a queued resource"):
        plan(provider, "q1")  # type: ignore[operator]


@COMMANDS
def test_a_name_that_nothing_has_is_an_error_unless_a_zone_is_silent(plan: object) -> None:
    provider = MemoryProvider(node())
    with pytest.raises(NotFoundError, match="no node 'n2'"):
        plan(provider, "n2")  # type: ignore[operator]
    provider.unreachable = ("us-east1-d",)
    with pytest.raises(DeadlineError, match="No answer from us-east1-d"):
        plan(provider, "n2")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (NodeState.READY, StopNode(ID)),
        (NodeState.STOPPING, None),
        (NodeState.STOPPED, None),
        (NodeState.PREEMPTED, PreemptedError),
        (NodeState.CREATING, StateError),
        (NodeState.DELETING, StateError),
        (NodeState.UNKNOWN, StateError),
    ],
)
def test_stop_in_each_state(state: NodeState, change: object) -> None:
    provider = MemoryProvider(node(state=state))
    if isinstance(change, type) and issubclass(change, TpuctlError):
        with pytest.raises(change, match=f"its {state}"):
            plan_stop(provider, "n1")
        return
    assert plan_stop(provider, "n1").change == change
    assert len(stop_requests(provider, plan_stop(provider, "n1"))) == (change is not None)


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (NodeState.STOPPED, StartNode(ID)),
        (NodeState.STOPPING, StartNode(ID)),
        (NodeState.STARTING, None),
        (NodeState.CREATING, None),
        (NodeState.READY, None),
        (NodeState.PREEMPTED, PreemptedError),
        (NodeState.DELETING, StateError),
    ],
)
def test_start_in_each_state(state: NodeState, change: object) -> None:
    provider = MemoryProvider(node(state=state))
    if isinstance(change, type) and issubclass(change, TpuctlError):
        with pytest.raises(change, match=f"its {state}"):
            plan_start(provider, "n1")
        return
    plan = plan_start(provider, "n1")
    assert plan.change == change
    methods = [request.method for request in start_requests(provider, plan, KEY)]
    assert methods == (["StartNode"] if change else []) + ["UpdateNode"], "our key is not there yet"


def test_start_waits_for_ssh_and_adds_the_key() -> None:
    provider, ssh = MemoryProvider(node(state=NodeState.STOPPED)), MemorySsh()
    started = start(provider, ssh, plan_start(provider, "n1"), KEY, silent)  # type: ignore[arg-type]
    assert started.state is NodeState.READY
    assert KEY.public_key in provider.nodes["n1"].metadata
    assert ssh.reached == [("n1", 0, "host key 0")]


@pytest.mark.parametrize(
    ("command", "before", "said"),
    [
        ("stop", NodeState.READY, "stopping n1"),
        ("stop", NodeState.STOPPED, "n1 is STOPPED"),
        ("start", NodeState.STOPPED, "starting n1"),
        ("start", NodeState.READY, "n1 is READY"),
    ],
)
def test_a_stop_and_a_start_say_what_they_do_first(command: str, before: NodeState, said: str) -> None:
    reports: list[str] = []
    existing = node(state=before, provider_state=before.name, metadata={KEY.public_key: ""})
    _change(command, MemoryProvider(existing), reports.append)
    assert reports[0] == said


class _Slow(MemoryProvider):
    """A provider on which a node never leaves the state on the way to another."""

    def __init__(self, before: NodeState, during: NodeState, *, operation_done: bool) -> None:
        super().__init__(node(state=before))
        self._during, self._operation_done = during, operation_done

    def begin(self, change: Change) -> Operation:
        self.nodes["n1"] = replace(self.nodes["n1"], state=self._during)
        return Operation("Node 'n1'", lambda: self._operation_done)


@pytest.mark.parametrize(("operation_done", "subject"), [(False, "Node"), (True, "node")])
def test_a_stop_and_a_start_are_given_fifteen_minutes(
    passing_time: PassingTime, operation_done: bool, subject: str
) -> None:
    provider = _Slow(NodeState.READY, NodeState.STOPPING, operation_done=operation_done)
    with pytest.raises(DeadlineError, match=rf"^Waited 900 s for {subject} 'n1' to be STOPPED\.") as late:
        stop(provider, plan_stop(provider, "n1"), silent)
    assert late.value.message.endswith("Node 'n1' in us-central1-b bills.")
    assert late.value.hint == "Stop it: tpuctl stop n1"
    assert passing_time.now == pytest.approx(15 * 60)
    provider = _Slow(NodeState.STOPPED, NodeState.STARTING, operation_done=operation_done)
    with pytest.raises(DeadlineError, match=rf"^Waited 900 s for {subject} 'n1' to be READY\.") as late:
        start(provider, MemorySsh(), plan_start(provider, "n1"), KEY, silent)  # type: ignore[arg-type]
    assert late.value.message.endswith("Node 'n1' in us-central1-b bills.")
    assert late.value.hint == COMMANDS_OF_A_START
    assert passing_time.now == pytest.approx(30 * 60)


COMMANDS_OF_A_START = "Resume: tpuctl start n1\nStop it again: tpuctl stop n1\nDelete it: tpuctl down n1"


def test_every_error_of_a_start_says_what_bills_and_how_to_go_on(passing_time: PassingTime) -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        provider = MemoryProvider(node(state=NodeState.STOPPED))
        with pytest.raises(HostError if kind is DeadlineError else kind) as error:
            start(provider, MemorySsh(kind("It failed.")), plan_start(provider, "n1"), KEY, silent)  # type: ignore[arg-type]
        assert error.value.message.endswith("Node 'n1' in us-central1-b bills."), name
        assert "Delete it: tpuctl down n1" in error.value.hint or kind is StockoutError, name
        assert error.value.facts["may_bill"] == ["n1 in us-central1-b"], name


def test_a_failed_stop_says_that_the_node_bills_unless_it_has_stopped() -> None:
    for takes_effect, bill in ((False, " Node 'n1' in us-central1-b bills."), (True, "")):
        provider = _Faulty(node(), ConfigError("It failed.", hint="Ask."), takes_effect=takes_effect)
        with pytest.raises(ConfigError) as error:
            _change("stop", provider)
        assert error.value.message == f"It failed.{bill}"
        assert error.value.hint == ("Ask.\nStop it: tpuctl stop n1" if bill else "Ask.")
        assert error.value.facts == ({"may_bill": ["n1 in us-central1-b"]} if bill else {})


def test_a_start_without_effect_bills_nothing_and_one_without_an_answer_may() -> None:
    stopped = node(state=NodeState.STOPPED)
    with pytest.raises(ConfigError) as error:
        _change("start", _Faulty(stopped, ConfigError("No right."), takes_effect=False))
    assert (error.value.message, error.value.facts) == ("No right.", {})

    class Silent(_Faulty):
        is_silent = False

        def begin(self, change: Change) -> Operation:
            self.is_silent = True
            return super().begin(change)

        def get_node(self, node: NodeId) -> Node:
            if self.is_silent:
                raise DeadlineError("No answer.")
            return super().get_node(node)

    with pytest.raises(DeadlineError) as error:
        _change("start", Silent(stopped, DeadlineError("No answer."), takes_effect=True))
    assert error.value.message == "No answer. Node 'n1' in us-central1-b may bill."


class _Faulty(MemoryProvider):
    """A provider on which changes first fail with an error, with or without effect."""

    def __init__(self, existing: Node, error: BaseException, *, takes_effect: bool) -> None:
        super().__init__(existing)
        self._error = error
        self._takes_effect = takes_effect

    def begin(self, change: Change) -> Operation:
        if self._takes_effect:
            super().begin(change)
        raise self._error


def _change(command: str, provider: MemoryProvider, report: Report = silent) -> Node:
    if command == "stop":
        return stop(provider, plan_stop(provider, "n1"), report)
    return start(provider, MemorySsh(), plan_start(provider, "n1"), KEY, report)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [("stop", NodeState.READY, NodeState.STOPPED), ("start", NodeState.STOPPED, NodeState.READY)],
)
def test_a_change_that_another_request_has_made_is_enough(
    command: str, before: NodeState, after: NodeState
) -> None:
    """A request is repeated when its answer is lost; the second is refused in the state after the first."""
    refused = StateError("not supported while in that state")
    existing = node(state=before, metadata={KEY.public_key: ""})
    assert _change(command, _Faulty(existing, refused, takes_effect=True)).state is after
    with pytest.raises(StateError, match="not supported"):
        _change(command, _Faulty(existing, refused, takes_effect=False))


def test_no_capacity_to_start_says_that_the_disk_is_kept() -> None:
    stopped = node(state=NodeState.STOPPED)
    provider = _Faulty(stopped, StockoutError("There is no more capacity."), takes_effect=False)
    with pytest.raises(StockoutError) as error:
        start(provider, MemorySsh(), plan_start(provider, "n1"), KEY, silent)  # type: ignore[arg-type]
    assert "Its disk is kept: try 'tpuctl start n1' later" in error.value.hint


def test_ctrl_c_says_what_may_bill_and_how_to_go_on() -> None:
    provider = _Faulty(node(), KeyboardInterrupt(), takes_effect=False)
    with pytest.raises(InterruptedByUser, match="may still bill") as stopping:
        stop(provider, plan_stop(provider, "n1"), silent)
    assert "tpuctl stop n1" in stopping.value.hint
    provider = _Faulty(node(state=NodeState.STOPPED), KeyboardInterrupt(), takes_effect=False)
    with pytest.raises(InterruptedByUser, match="bills from now on") as starting:
        start(provider, MemorySsh(), plan_start(provider, "n1"), KEY, silent)  # type: ignore[arg-type]
    assert "tpuctl stop n1" in starting.value.hint


class _Walking(MemoryProvider):
    """A provider whose node is in the next of some states at each look."""

    def __init__(self, first: Node, *states: NodeState) -> None:
        super().__init__(first)
        self._states = list(states)

    def get_node(self, node: NodeId) -> Node:
        if self._states:
            state = self._states.pop(0)
            self.nodes[node.name] = replace(self.nodes[node.name], state=state, provider_state=f"its {state}")
        return super().get_node(node)


def test_a_start_while_it_stops_waits_for_the_stop() -> None:
    stopping = node(state=NodeState.STOPPING, metadata={KEY.public_key: ""})
    provider = _Walking(stopping, NodeState.STOPPING, NodeState.STOPPED)
    said: list[str] = []
    plan = plan_start(provider, "n1")
    assert start(provider, MemorySsh(), plan, KEY, said.append).state is NodeState.READY  # type: ignore[arg-type]
    assert said[:2] == ["n1 is its STOPPING: it is started once it is STOPPED", "starting n1"]


def test_a_node_that_somebody_starts_meanwhile_is_not_called_stopped() -> None:
    provider = _Walking(node(state=NodeState.STOPPING), NodeState.STOPPING, NodeState.READY)
    with pytest.raises(StateError, match="is its READY, not STOPPED: another command changed it"):
        stop(provider, plan_stop(provider, "n1"), silent)


def test_a_host_that_does_not_answer_is_an_error_of_the_host() -> None:
    provider = MemoryProvider(node(state=NodeState.STOPPED))
    ssh = MemorySsh(HostError("another key", host_key="x"))
    with pytest.raises(HostError, match="another key"):
        start(provider, ssh, plan_start(provider, "n1"), KEY, silent)  # type: ignore[arg-type]


def test_the_commands_of_an_error_are_of_the_zone_that_was_named(passing_time: PassingTime) -> None:
    """Elsewhere there may be another of the name, which is meant as soon as this one is gone."""
    provider = _Slow(NodeState.READY, NodeState.STOPPING, operation_done=True)
    with pytest.raises(DeadlineError) as error:
        stop(provider, plan_stop(provider, "n1", ID.zone), silent)
    assert error.value.hint == f"Stop it: tpuctl stop n1 --zone {ID.zone}"
