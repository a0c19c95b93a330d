"""Tests creating a node with any provider: plan, requests, waiting and messages.

Waiting for a TPU that was requested before: which hosts have to answer, and what is said meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, MemorySsh, node, queued_resource
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    HostError,
    InterruptedByUser,
    NotFoundError,
    PreemptedError,
    StateError,
    StockoutError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import UpPlan, default_name, plan_up
from tpuctl.flows.nodes.up import requests, up, wait
from tpuctl.nodes import (
    Change,
    HttpRequest,
    Node,
    NodeId,
    NodeRequest,
    NodeState,
    QueueState,
    SshKey,
    owner_label,
)

KEY = SshKey("ada", "ssh-ed25519 AAAA")
OPTIONS = UpOptions("v3-8", "n1", "ada@x.org", framework="jax")
OWN = {"managed-by": "tpuctl", "tpuctl-owner": owner_label(OPTIONS.owner)}


def planned(provider: MemoryProvider, *, zone: str = ZONE, **options: object) -> UpPlan:
    return plan_up(provider, KEY, msgspec.structs.replace(OPTIONS, **options), Search((zone,)))  # type: ignore[arg-type]


class TestPlan:
    def test_a_new_node_is_requested_with_owner_and_key(self) -> None:
        plan = planned(MemoryProvider())
        assert plan.existing is None
        assert (plan.hosts, plan.chips) == (1, 4)
        assert plan.request.id == NodeId("memory", "p", ZONE, "n1")
        assert plan.request.runtime == "image-2", "the provider's default"
        assert plan.request.labels == {"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada@x.org")}
        assert plan.request.metadata == {"tpuctl-owner": "ada@x.org"}
        assert plan.request.ssh_key == KEY

    def test_an_existing_node_is_used(self) -> None:
        assert planned(MemoryProvider(node())).existing == Allocation((node(),))

    @pytest.mark.parametrize("state", [state for state in NodeState if state.becomes_ready])
    def test_a_node_that_becomes_ready_is_used(self, state: NodeState) -> None:
        assert planned(MemoryProvider(node(state=state))).existing == Allocation((node(state=state),))

    @pytest.mark.parametrize(
        ("state", "error"),
        [
            (NodeState.PREEMPTED, PreemptedError),
            (NodeState.STOPPING, StateError),
            (NodeState.DELETING, StateError),
        ],
    )
    def test_a_node_of_another_owner_that_does_not_is_refused(
        self, state: NodeState, error: type[TpuctlError]
    ) -> None:
        with pytest.raises(error, match=f"is its {state}"):
            planned(MemoryProvider(node(state=state)))

    @pytest.mark.parametrize("state", [NodeState.PREEMPTED, NodeState.DELETING])
    def test_ones_own_node_that_has_ended_is_deleted_and_another_created(self, state: NodeState) -> None:
        provider = MemoryProvider(node(state=state))
        plan = planned(provider, owner="ada")
        assert (plan.existing, [item.name for item in plan.ended]) == (None, ["n1"])
        sent = [request.method for request in requests(provider, plan)]
        assert sent == ["DeleteNode", "CreateNode"][state is NodeState.DELETING :]

    def test_a_stopped_node_is_started(self) -> None:
        stopped = node(state=NodeState.STOPPED, metadata={KEY.public_key: ""}, labels=OWN)
        provider = MemoryProvider(stopped)
        plan = planned(provider)
        assert plan.stopped == stopped
        assert requests(provider, plan) == [HttpRequest("StartNode", "n1")]

    def test_a_stopped_node_of_somebody_else_is_not_started_by_its_name_alone(self) -> None:
        """Default names are of logins, such as root, which many people share."""
        provider = MemoryProvider(node(state=NodeState.STOPPED, metadata={"tpuctl-owner": "alice@x.org"}))
        with pytest.raises(StateError) as refused:
            planned(provider)
        assert refused.value.message == f"Node 'n1' in {ZONE} is stopped, and belongs to alice@x.org."
        assert refused.value.hint == (
            "Give yours another name with --name. Start it, so that it bills: tpuctl start n1"
        )

    def test_every_difference_of_an_existing_node_is_named(self) -> None:
        with pytest.raises(
            StateError, match=r"exists and is a v3-8 and is not spot and has the runtime image-2\."
        ):
            planned(MemoryProvider(node()), accelerator="v2-8", spot=True, runtime="image-1")

    @pytest.mark.parametrize("name", ["", "N1", "1n", "n_1", "n-", "n" * 64])
    def test_a_name_that_no_node_can_have_is_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match="cannot name a node"):
            planned(MemoryProvider(), name=name)

    def test_a_type_that_the_zone_lacks_names_zones_that_have_it(self) -> None:
        with pytest.raises(UsageError, match="v3-8 is not offered in europe-west4-a") as missing:
            planned(MemoryProvider(), zone="europe-west4-a")
        assert "It is available in " in missing.value.hint

    def test_a_mistyped_zone_suggests_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="There is no zone 'us-centrall1-b' with TPUs") as missing:
            planned(MemoryProvider(), zone="us-centrall1-b")
        assert missing.value.hint == "Did you mean us-central1-b?"

    def test_a_runtime_that_the_zone_lacks_suggests_others(self) -> None:
        with pytest.raises(UsageError, match="has no runtime version 'image-9'") as missing:
            planned(MemoryProvider(), runtime="image-9")
        assert "image-1" in missing.value.hint

    @pytest.mark.parametrize(
        ("user", "name"), [("ada", "ada-v3-8"), ("Ada.L", "ada-l-v3-8"), ("7", "v3-8"), ("é", "v3-8")]
    )
    def test_a_default_name_can_name_a_node(self, user: str, name: str) -> None:
        assert default_name(user, "v3-8") == name


class TestDryRun:
    def test_a_new_node_is_a_create(self) -> None:
        provider = MemoryProvider()
        assert requests(provider, planned(provider)) == [HttpRequest("CreateNode", "n1")]

    def test_an_existing_node_without_the_key_gets_the_key(self) -> None:
        provider = MemoryProvider(node())
        assert requests(provider, planned(provider)) == [HttpRequest("UpdateNode", "n1")]

    def test_an_existing_node_with_the_key_gets_nothing(self) -> None:
        provider = MemoryProvider(node(metadata={KEY.public_key: ""}))
        assert requests(provider, planned(provider)) == []


class TestUp:
    def test_a_node_is_created_and_every_host_reached(self) -> None:
        provider, ssh, reports = MemoryProvider(), MemorySsh(), list[str]()
        created = run_up(provider, ssh, reports)
        assert created == provider.nodes["n1"]
        assert ssh.reached == [("n1", 0, "host key 0")]
        assert reports == [f"creating n1 (v3-8) in {ZONE}", "waiting for SSH on 1 host"]

    def test_an_existing_node_gets_the_key_and_is_not_created_again(self) -> None:
        provider, reports = MemoryProvider(node()), list[str]()
        run_up(provider, MemorySsh(), reports)
        assert provider.created == []
        assert provider.ssh_key_change(provider.nodes["n1"], KEY) is None
        assert reports == ["n1 exists", "adding your SSH key to n1", "waiting for SSH on 1 host"]

    def test_a_node_that_has_ended_is_deleted_first(self) -> None:
        class Recording(MemoryProvider):
            begun: list[str] = []  # noqa: RUF012  one provider

            def begin(self, change: Change) -> Operation:
                self.begun.append(type(change).__name__)
                return super().begin(change)

        provider = Recording(node(state=NodeState.PREEMPTED))
        assert run_up(provider, MemorySsh(), [], owner="ada").state is NodeState.READY
        assert provider.begun == ["DeleteNode", "CreateNode"]

    @pytest.mark.parametrize("error", [DeadlineError("No answer."), ConflictError("It exists.")])
    def test_a_create_whose_answer_is_lost_is_not_sent_again(self, error: TpuctlError) -> None:
        provider = MemoryProvider()

        def create_and_fail(request: NodeRequest) -> None:
            provider.add(request)
            raise error

        provider.on_create = create_and_fail
        assert run_up(provider, MemorySsh(), []).name == "n1"
        assert len(provider.created) == 1

    @pytest.mark.parametrize("error", [DeadlineError("No answer."), ConflictError("It exists.")])
    def test_a_create_that_did_not_arrive_is_an_error(self, error: TpuctlError) -> None:
        provider = MemoryProvider()
        provider.on_create = raiser(error)
        with pytest.raises(type(error)):
            run_up(provider, MemorySsh(), [])

    def test_a_stockout_names_zones_of_the_same_continent_first(self) -> None:
        provider = MemoryProvider()
        provider.on_create = raiser(StockoutError("No more capacity.", hint="Wait."))
        with pytest.raises(StockoutError) as stockout:
            run_up(provider, MemorySsh(), [], accelerator="v2-8")
        assert stockout.value.hint.split("\n")[1].startswith("Try the next zone: tpuctl up v2-8 ")
        assert stockout.value.facts["zone"] == ZONE

    def test_ctrl_c_says_how_to_resume_and_how_to_delete(self) -> None:
        provider = MemoryProvider()
        provider.on_create = raiser(KeyboardInterrupt())
        with pytest.raises(InterruptedByUser) as interrupted:
            run_up(provider, MemorySsh(), [])
        assert (
            interrupted.value.hint
            == "Resume: tpuctl up v3-8 --name n1 --framework jax\nDelete it: tpuctl down n1"
        )

    def test_a_create_is_given_half_an_hour(self, passing_time: PassingTime) -> None:
        class Unfinished(MemoryProvider):
            def begin(self, change: Change) -> Operation:
                return Operation("Node 'n1'", lambda: False)

        with pytest.raises(DeadlineError) as timeout:
            run_up(Unfinished(), MemorySsh(), [])
        assert timeout.value.message == "Waited 1800 s for Node 'n1' to be created."
        assert timeout.value.hint == (
            "It may still be created: the same command again keeps waiting.\nGive up: tpuctl down n1"
        )
        assert passing_time.now == pytest.approx(30 * 60)

    def test_the_start_of_a_stopped_node_is_given_fifteen_minutes(self, passing_time: PassingTime) -> None:
        class Unfinished(MemoryProvider):
            def begin(self, change: Change) -> Operation:
                return Operation("Node 'n1'", lambda: False)

        with pytest.raises(DeadlineError, match=r"Waited 900 s for Node 'n1' to be started\."):
            run_up(Unfinished(node(state=NodeState.STOPPED, labels=OWN)), MemorySsh(), [])
        assert passing_time.now == pytest.approx(15 * 60)

    def test_a_node_that_exists_is_given_half_an_hour_and_each_of_its_states_is_reported_once(
        self, passing_time: PassingTime
    ) -> None:
        provider, reports = MemoryProvider(node(state=NodeState.CREATING)), list[str]()
        with pytest.raises(DeadlineError) as timeout:
            run_up(provider, MemorySsh(), reports)
        assert (
            timeout.value.message
            == "Waited 1800 s for node 'n1' to be READY. Node 'n1' in us-central1-b bills."
        )
        assert timeout.value.hint.startswith(
            "See 'tpuctl ls'.\nResume: tpuctl up v3-8 --name n1 --framework jax\n"
        )
        assert passing_time.now == pytest.approx(30 * 60)
        assert reports == ["n1 exists", f"n1 is {node(state=NodeState.CREATING).provider_state}"]

    def test_a_host_with_a_wrong_host_key_is_not_tried_again(self) -> None:
        with pytest.raises(HostError, match="not the one it published"):
            run_up(MemoryProvider(), MemorySsh(HostError("not the one it published", host_key="wrong")), [])


def run_up(provider: MemoryProvider, ssh: MemorySsh, reports: list[str], **options: object) -> Node:
    plan = planned(provider, **options)  # type: ignore[arg-type]
    return up(provider, ssh, plan, reports.append).nodes[0]  # type: ignore[arg-type]


def raiser(error: BaseException) -> Callable[[NodeRequest], None]:
    """Return a function of a request that raises."""

    def fail(request: NodeRequest) -> None:
        raise error

    return fail


class TestWhatChangesMeanwhile:
    """`up` is asked, and another command is faster, or an answer is lost."""

    @pytest.mark.parametrize(
        ("other", "difference"),
        [
            ({"accelerator": "v2-8"}, "is a v2-8 and is not spot and has no --ttl"),
            ({"metadata": {"tpuctl-ttl": "60s"}}, "is not spot"),
            ({"spot": True}, "has no --ttl"),
        ],
    )
    def test_a_node_of_another_kind_under_the_name_is_refused(
        self, other: dict[str, object], difference: str
    ) -> None:
        provider = MemoryProvider()

        def overtaken(request: NodeRequest) -> None:
            provider.nodes["n1"] = node("n1", **other)
            raise ConflictError("It exists.")

        provider.on_create = overtaken
        with pytest.raises(StateError, match=f"Node 'n1' {difference}: another command created it"):
            run_up(provider, MemorySsh(), [], spot=True, lifetime=Lifetime(ttl=3600))

    def test_a_stockout_whose_answer_to_the_create_is_lost_is_a_stockout(self) -> None:
        def stocked_out() -> bool:
            raise StockoutError("No more capacity.")

        class Lossy(MemoryProvider):
            sent = False

            def begin(self, change: Change) -> Operation:
                self.sent = True
                raise DeadlineError("No answer.")

            def creations(self, node: NodeId) -> Mapping[str, Operation]:
                former = {"former": Operation("Node 'n1'", lambda: True)}
                return {**former, "ours": Operation("Node 'n1'", stocked_out)} if self.sent else former

        with pytest.raises(StockoutError, match="No more capacity"):
            run_up(Lossy(), MemorySsh(), [])

    def test_an_error_after_the_create_says_that_the_node_bills(self) -> None:
        provider = MemoryProvider()
        with pytest.raises(HostError, match=r"another host\. Node 'n1' in us-central1-b bills\.$") as error:
            run_up(provider, MemorySsh(HostError("It is another host.", host_key="wrong")), [])
        assert "Delete it: tpuctl down n1" in error.value.hint
        assert error.value.facts["may_bill"] == [f"n1 in {ZONE}"]

    def test_the_commands_that_go_on_are_apart_from_that_of_the_failure(self) -> None:
        ssh = MemorySsh(HostError("It is another host.", hint="Check: tpuctl doctor", host_key="wrong"))
        with pytest.raises(HostError) as error:
            run_up(MemoryProvider(), ssh, [])
        assert error.value.hint.startswith("Check: tpuctl doctor\nResume: tpuctl up ")

    def test_a_provider_that_does_not_answer_may_bill(self, passing_time: PassingTime) -> None:
        class Silent(MemoryProvider):
            def get_node(self, node: NodeId) -> Node:
                if self.created:
                    self.unreachable = (ZONE,)
                    self.nodes = {}
                    raise DeadlineError("No answer.")
                return super().get_node(node)

        with pytest.raises(DeadlineError, match=r"No answer\. Node 'n1' in us-central1-b may bill\.$"):
            run_up(Silent(), MemorySsh(), [])


KNOWN = {KEY.public_key: ""}


def waited(provider: MemoryProvider, ssh: MemorySsh, seconds: float = 60.0) -> list[str]:
    """Return the names of the nodes that are there in the end."""
    allocation = wait(provider, ssh, KEY, "n1", None, seconds, lambda _: None)  # type: ignore[arg-type]
    return [item.name for item in allocation.nodes]


def test_every_host_that_knows_the_key_answers_first() -> None:
    provider, ssh = MemoryProvider(node(metadata=KNOWN, addresses=("10.0.0.1", "10.0.0.2"))), MemorySsh()
    assert waited(provider, ssh) == ["n1"]
    assert sorted(ssh.reached) == [("n1", 0, "host key 0"), ("n1", 1, "host key 1")]
    assert provider.nodes["n1"].metadata == KNOWN


def test_a_host_that_knows_another_key_alone_is_not_asked_and_nothing_is_changed() -> None:
    provider = MemoryProvider(node())
    ssh = MemorySsh(HostError("nobody should be asked"))
    assert waited(provider, ssh) == ["n1"]
    assert provider.nodes == {"n1": node()}


def test_all_hosts_are_listed_first_also_where_they_do_not_know_the_key(passing_time: PassingTime) -> None:
    provider = MemoryProvider(node(accelerator="v4-16"))
    with pytest.raises(DeadlineError, match="the addresses of all hosts of 'n1'"):
        waited(provider, MemorySsh(HostError("nobody should be asked")))


def test_a_host_that_is_another_one_is_an_error() -> None:
    with pytest.raises(HostError, match=r"^It is another host\."):
        waited(
            MemoryProvider(node(metadata=KNOWN)),
            MemorySsh(HostError("It is another host.", host_key="wrong")),
        )


def test_a_name_that_nothing_has_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        waited(MemoryProvider(), MemorySsh())


def test_a_node_that_is_being_created_is_waited_for_as_long_as_a_creation_may_take(
    passing_time: PassingTime,
) -> None:
    with pytest.raises(DeadlineError, match=r"^Waited 1800 s for node 'n1' to be READY\.$"):
        waited(MemoryProvider(node(state=NodeState.CREATING)), MemorySsh(), seconds=600.0)
    assert passing_time.now == pytest.approx(1800.0)


def test_a_request_in_the_queue_is_waited_for_as_long_as_was_asked(passing_time: PassingTime) -> None:
    provider = MemoryProvider()
    provider.queue["q1"] = queued_resource(QueueState.WAITING)
    with pytest.raises(DeadlineError, match=r"^'q1' still waits for capacity in us-central1-b\."):
        waited(provider, MemorySsh(), seconds=600.0)
    assert passing_time.now == pytest.approx(600.0, abs=1.0)
