"""A creation is begun once, and waited for: what is said meanwhile, and why there will be none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreemptedError,
    StateError,
    StockoutError,
    TpuctlError,
)
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.placement import creation
from tpuctl.flows.nodes.placement.creation import Patience
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    NodeId,
    NodeRequest,
    NodeState,
    QueuedResourceId,
    QueuedResourceRequest,
    QueueState,
    SshKey,
)

REQUEST = NodeRequest(NodeId("memory", "p", ZONE, "n1"), "v3-8", "image-2", False, {}, SshKey("ada", "key"))
NODE = CreateNode(REQUEST)
QUEUED = QueuedResourceId("memory", "p", ZONE, "q1")
QUEUE = CreateQueuedResource(QueuedResourceRequest(QUEUED, REQUEST))
AGAIN = "'tpuctl up' again creates another."
DONE = Operation("it", lambda: True)


class Cloud(MemoryProvider):
    """A provider that answers as the test says, one look after the other."""

    def __init__(self, *nodes: Any) -> None:
        super().__init__(*nodes)
        self.errors: list[TpuctlError] = []
        """Of the next changes."""
        self.looks: list[Callable[[], object]] = []
        """Done before the next looks at a node or a queued resource."""
        self.operations: list[dict[str, Operation]] = []
        self.said: list[str] = []

    def begin(self, change: Any) -> Operation:
        if self.errors:
            raise self.errors.pop(0)
        if isinstance(change, CreateQueuedResource):
            self.queue[change.request.id.name] = queued_resource()
            return DONE
        return super().begin(change)

    def creations(self, node: NodeId) -> dict[str, Operation]:
        return self.operations.pop(0) if len(self.operations) > 1 else (self.operations or [{}])[0]

    def get_node(self, node: NodeId) -> Any:
        self._look()
        return super().get_node(node)

    def get_queued_resource(self, queued_resource: QueuedResourceId) -> Any:
        self._look()
        return super().get_queued_resource(queued_resource)

    def _look(self) -> None:
        if self.looks:
            self.looks.pop(0)()

    def become(self, state: NodeState | QueueState | None, **fields: Any) -> Callable[[], None]:
        """Return what changes the node, or the queued resource; None for its end."""

        def change() -> None:
            if isinstance(state, NodeState):
                self.nodes["n1"] = node(state=state, **fields)
            elif state is None:
                self.nodes.pop("n1", None)
                self.queue.pop("q1", None)
            else:
                self.queue["q1"] = queued_resource(state, **fields)

        return change


@pytest.fixture
def cloud(passing_time: PassingTime) -> Cloud:
    """Nothing exists; waiting takes no time."""
    return Cloud()


class TestBegin:
    def test_a_node_is_requested_once_and_that_is_said(self, cloud: Cloud) -> None:
        assert creation.begin(cloud, NODE, cloud.said.append).is_done()
        assert (cloud.said, len(cloud.created)) == ([f"creating n1 (v3-8) in {ZONE}"], 1)

    @pytest.mark.parametrize(("slices", "size"), [(1, "v3-8"), (2, "2 x v3-8")])
    def test_a_queued_resource_says_its_size(self, cloud: Cloud, slices: int, size: str) -> None:
        creation.begin(cloud, CreateQueuedResource(replace(QUEUE.request, slices=slices)), cloud.said.append)
        assert cloud.said == [f"queueing q1 ({size}) in {ZONE}"]

    @pytest.mark.parametrize("error", [DeadlineError("no answer"), ConflictError("exists")])
    def test_what_exists_after_a_lost_answer_is_used(self, cloud: Cloud, error: TpuctlError) -> None:
        cloud.nodes["n1"], cloud.queue["q1"] = node(), queued_resource()
        for change, subject in ((NODE, "Node 'n1'"), (QUEUE, "Queued resource 'q1'")):
            cloud.errors = [error]
            operation = creation.begin(cloud, change, cloud.said.append)
            assert (operation.subject, operation.is_done()) == (subject, True)

    @pytest.mark.parametrize("change", [NODE, QUEUE])
    @pytest.mark.parametrize("error", [DeadlineError("no answer"), StockoutError("none")])
    def test_where_nothing_exists_the_error_stands(
        self, cloud: Cloud, change: CreateNode | CreateQueuedResource, error: TpuctlError
    ) -> None:
        cloud.errors = [error]
        with pytest.raises(type(error)) as raised:
            creation.begin(cloud, change, cloud.said.append)
        assert raised.value.message == error.message
        assert isinstance(raised.value, creation.NotBegunError) is isinstance(error, DeadlineError)

    def test_an_operation_that_was_begun_meanwhile_is_waited_for(self, cloud: Cloud) -> None:
        mine = Operation("mine", lambda: True)
        cloud.errors, cloud.operations = [DeadlineError("no answer")], [{"1": DONE}, {"1": DONE, "2": mine}]
        assert creation.begin(cloud, NODE, cloud.said.append) is mine

    def test_an_older_operation_is_none(self, cloud: Cloud) -> None:
        cloud.errors, cloud.operations = [DeadlineError("no answer")], [{"1": DONE}, {"1": DONE}]
        with pytest.raises(DeadlineError):
            creation.begin(cloud, NODE, cloud.said.append)


class TestNode:
    def test_its_states_are_said_once_until_it_is_ready(self, cloud: Cloud) -> None:
        states = [NodeState.CREATING, NodeState.CREATING, NodeState.STARTING, NodeState.READY]
        cloud.looks = [cloud.become(state) for state in states]
        made = creation.await_creation(cloud, NODE, DONE, Patience(), cloud.said.append)
        assert made == Allocation((node(),))
        assert cloud.said == ["n1 is its CREATING", "n1 is its STARTING"]

    @pytest.mark.parametrize(
        ("state", "error", "message", "hint"),
        [
            (None, NotFoundError, f"Node 'n1' in {ZONE} does not exist any more.", AGAIN),
            (NodeState.DELETING, NotFoundError, f"Node 'n1' in {ZONE} is being deleted.", AGAIN),
            (NodeState.PREEMPTED, PreemptedError, "Node 'n1' is its PREEMPTED.",
             "Delete it ('tpuctl down n1') and create it again."),
            (NodeState.STOPPED, StateError, "Node 'n1' is its STOPPED.", "Start it again: tpuctl start n1"),
        ],
    )  # fmt: skip
    def test_one_that_will_not_be_ready_says_why(
        self, cloud: Cloud, state: NodeState | None, error: type[TpuctlError], message: str, hint: str
    ) -> None:
        cloud.looks = [cloud.become(NodeState.CREATING), cloud.become(state)]
        with pytest.raises(error) as raised:
            creation.await_node(cloud, REQUEST.id, cloud.said.append)
        assert (raised.value.message, raised.value.hint) == (message, hint)

    def test_half_an_hour_is_enough(self, cloud: Cloud, passing_time: PassingTime) -> None:
        cloud.nodes["n1"] = node(state=NodeState.CREATING)
        with pytest.raises(DeadlineError, match="node 'n1' to be READY") as raised:
            creation.await_node(cloud, REQUEST.id, cloud.said.append)
        assert raised.value.hint == "See 'tpuctl ls'."
        assert 1800 <= passing_time.now < 1900

    def test_an_operation_that_does_not_end_may_still_create_it(
        self, cloud: Cloud, passing_time: PassingTime
    ) -> None:
        endless = Operation("Node 'n1'", lambda: False)
        with pytest.raises(DeadlineError, match="Node 'n1' to be created") as raised:
            creation.await_creation(cloud, NODE, endless, Patience(), cloud.said.append)
        assert raised.value.hint == (
            "It may still be created: the same command again keeps waiting.\nGive up: tpuctl down n1"
        )
        assert 1800 <= passing_time.now < 1900


class TestExisting:
    def fail(self) -> bool:
        raise StockoutError("There is no capacity.")

    def test_the_operation_of_another_command_says_why_there_is_none(self, cloud: Cloud) -> None:
        looks = iter([False])
        running = Operation("Node 'n1'", lambda: next(looks, None) is None and self.fail())
        cloud.operations = [{"0": Operation("an earlier one", self.fail), "1": DONE, "2": running}]
        cloud.nodes["n1"] = node(state=NodeState.CREATING)
        with pytest.raises(StockoutError, match=r"^There is no capacity\.$"):
            creation.await_existing(cloud, Allocation((cloud.nodes["n1"],)), Patience(), cloud.said.append)

    def test_the_failure_of_an_earlier_node_of_the_name_is_none(self, cloud: Cloud) -> None:
        cloud.operations = [{"0": Operation("an earlier one", self.fail), "1": DONE}]
        cloud.looks = [cloud.become(NodeState.READY)]
        existing = Allocation((node(state=NodeState.CREATING),))
        assert creation.await_existing(cloud, existing, Patience(), cloud.said.append).nodes == (node(),)

    def test_one_that_is_being_started_has_no_operation_to_wait_for(self, cloud: Cloud) -> None:
        cloud.operations = [{"0": Operation("endless", lambda: False)}]
        cloud.looks = [cloud.become(NodeState.READY)]
        existing = Allocation((node(state=NodeState.STARTING),))
        assert creation.await_existing(cloud, existing, Patience(), cloud.said.append).nodes == (node(),)

    def test_a_queued_resource_is_followed_in_its_queue(self, cloud: Cloud) -> None:
        cloud.looks = [cloud.become(QueueState.SUSPENDED)]
        existing = Allocation((), queued_resource())
        with pytest.raises(StateError, match="Queued resource 'q1'"):
            creation.await_existing(cloud, existing, Patience(), cloud.said.append)


class TestQueue:
    def active(self, cloud: Cloud, state: NodeState = NodeState.READY) -> Callable[[], None]:
        def change() -> None:
            cloud.become(QueueState.ACTIVE)()
            cloud.nodes["n1"] = node(state=state, queued_resource="q1")

        return change

    def await_queued(self, cloud: Cloud, *looks: Callable[[], object], **patience: Any) -> Allocation:
        cloud.queue["q1"] = queued_resource()
        cloud.looks = list(looks)
        return creation.await_queued(cloud, QUEUED, Patience(**patience), cloud.said.append)

    def refuse(self) -> None:
        raise DeadlineError("no answer")

    def test_its_states_are_said_until_all_nodes_are_ready(self, cloud: Cloud) -> None:
        made = self.await_queued(
            cloud, lambda: None, self.refuse, self.refuse, lambda: None,
            self.active(cloud, NodeState.CREATING), self.active(cloud),
        )  # fmt: skip
        assert [item.name for item in made.nodes] == ["n1"]
        assert cloud.said == [
            f"q1 is its WAITING in {ZONE}", f"no answer about q1 from {ZONE}; asking again",
            f"q1 is its WAITING in {ZONE}", f"q1 is its ACTIVE in {ZONE}",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("state", "fields", "error", "message", "hint"),
        [
            (None, {}, NotFoundError, f"Queued resource 'q1' in {ZONE} does not exist any more.", AGAIN),
            (QueueState.DELETING, {}, NotFoundError,
             f"Queued resource 'q1' in {ZONE} is being deleted.", AGAIN),
            (QueueState.SUSPENDED, {"initiator": "SERVICE"}, PreemptedError,
             f"Queued resource 'q1' in {ZONE} is its SUSPENDED.",
             "'tpuctl up' again deletes it and creates it anew."),
            (QueueState.SUSPENDING, {"initiator": "USER"}, StateError,
             f"Queued resource 'q1' in {ZONE} is its SUSPENDING.",
             "'tpuctl up' again deletes it and creates it anew."),
            (QueueState.FAILED, {"failure": StockoutError("none", hint="wait")}, StockoutError,
             "none", "wait"),
        ],
    )  # fmt: skip
    def test_one_without_hope_says_why(
        self, cloud: Cloud, state: QueueState | None, fields: dict[str, Any], error: type[TpuctlError],
        message: str, hint: str,
    ) -> None:  # fmt: skip
        with pytest.raises(error) as raised:
            self.await_queued(cloud, lambda: None, cloud.become(state, **fields))
        assert (type(raised.value), raised.value.message, raised.value.hint) == (error, message, hint)

    def test_a_node_of_it_that_is_lost_is_no_ready_one(self, cloud: Cloud) -> None:
        with pytest.raises(StateError, match="Node 'n1' is its STOPPED"):
            self.await_queued(cloud, self.active(cloud, NodeState.STOPPED))

    def test_without_capacity_it_leaves_the_queue(self, cloud: Cloud, passing_time: PassingTime) -> None:
        with pytest.raises(StockoutError) as raised:
            self.await_queued(cloud, seconds=600.0)
        assert raised.value.message == (
            f"There was no capacity for 'q1' in {ZONE} within 10m; its request is out of the queue again."
        )
        assert cloud.queue == {}
        assert 500 <= passing_time.now <= 700

    def test_or_stays_there_where_somebody_only_waits(self, cloud: Cloud) -> None:
        with pytest.raises(DeadlineError) as raised:
            self.await_queued(cloud, seconds=600.0, gives_up=False)
        assert raised.value.message == f"'q1' still waits for capacity in {ZONE}."
        assert raised.value.hint == "Keep waiting: tpuctl wait q1\nGive up: tpuctl down q1"
        assert "q1" in cloud.queue

    def test_one_that_gets_its_nodes_at_that_moment_is_had(self, cloud: Cloud) -> None:
        cloud.errors = [StateError("It has nodes.")]
        cloud.queue["q1"] = queued_resource()
        looks = iter(range(1000))

        def wait_then_get() -> None:
            if next(looks) > 20:
                self.active(cloud)()
            elif not cloud.errors:
                cloud.become(QueueState.PROVISIONING)()

        cloud._look = wait_then_get  # type: ignore[method-assign]
        made = creation.await_queued(cloud, QUEUED, Patience(10.0), cloud.said.append)
        assert [item.name for item in made.nodes] == ["n1"]


class TestWithdraw:
    def test_it_returns_once_the_request_is_gone(self, cloud: Cloud) -> None:
        cloud.errors = [NotFoundError("gone")]
        cloud.looks = [
            cloud.become(QueueState.DELETING),
            cloud.become(QueueState.DELETING),
            cloud.become(None),
        ]
        assert creation.withdraw(cloud, QUEUED)

    def test_one_with_nodes_stays(self, cloud: Cloud) -> None:
        cloud.errors, cloud.queue["q1"] = [StateError("It has nodes.")], queued_resource(QueueState.ACTIVE)
        assert not creation.withdraw(cloud, QUEUED)

    def test_one_whose_deletion_does_not_end_may_bill(self, cloud: Cloud) -> None:
        cloud.errors, cloud.queue["q1"] = [NotFoundError("gone")], queued_resource(QueueState.DELETING)
        with pytest.raises(DeadlineError, match=f"queued resource 'q1' in {ZONE} to be deleted") as raised:
            creation.withdraw(cloud, QUEUED)
        assert raised.value.hint == "It may still bill: tpuctl down q1"


def test_a_creation_knows_its_zone_and_name() -> None:
    assert [creation.zone_of(change) for change in (NODE, QUEUE)] == [ZONE, ZONE]
    assert [creation.name_of(change) for change in (NODE, QUEUE)] == ["n1", "q1"]
