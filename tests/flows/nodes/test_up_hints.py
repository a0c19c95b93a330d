"""What `up` says when it does not end well: what bills where, and the command that goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, MemorySsh, node, queued_resource
from tests.flows.nodes.test_plan import KEY, OPTIONS, A, B, C, Zones, in_zone
from tests.flows.passing_time import PassingTime
from tpuctl import accelerators, errors
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    HostError,
    InterruptedByUser,
    PreemptedError,
    QuotaError,
    StateError,
    StockoutError,
    TpuctlError,
)
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import plan_up
from tpuctl.flows.nodes.up import requests, up
from tpuctl.nodes import HttpRequest, NodeList, NodeRequest, NodeState, owner_label
from tpuctl.nodes.candidates import race_id

V3 = accelerators.accelerator("v3-8")


@pytest.fixture(autouse=True)
def _no_waiting(passing_time: PassingTime) -> None:
    """Waits take no time."""


def raised(error: BaseException, search: Search, **options: Any) -> TpuctlError:
    """Return the error of `up` where a create fails like this."""
    provider = MemoryProvider()

    def fail(request: NodeRequest) -> None:
        raise error

    provider.on_create = fail
    provider.list_accelerator_types = lambda zone: ["v3-8"]  # type: ignore[method-assign]
    plan = plan_up(provider, KEY, msgspec.structs.replace(OPTIONS, **options), search)
    with pytest.raises(TpuctlError) as caught:
        up(provider, MemorySsh(), plan, lambda line: None)  # type: ignore[arg-type]
    return caught.value


def raises(error: TpuctlError) -> Callable[[object], Any]:
    """Return what looks at a resource and raises."""

    def look(resource: object) -> Any:
        raise error

    return look


class TestStockout:
    def test_the_next_zone_is_one_of_the_same_continent(self) -> None:
        error = raised(StockoutError("There is no capacity."), Search((B,)))
        near = [zone for zone in V3.zones if zone.startswith("us-") and zone != B]
        far = [zone for zone in V3.zones if not zone.startswith("us-")]
        others = [*near, *far]
        assert error.message == "There is no capacity."
        assert error.hint == (
            f"It is also offered in {', '.join(others[1:4])}.\n"
            f"Try the next zone: tpuctl up v3-8 --name n1 --framework jax --zone {others[0]}\n"
            "Try every zone: tpuctl up v3-8 --name n1 --framework jax --zone any\n"
            "Keep trying: tpuctl up v3-8 --name n1 --framework jax --wait-capacity 6h"
        )
        assert error.facts["zone"] == B

    def test_the_command_is_the_one_that_was_typed(self) -> None:
        typed = ("up", "v3-8", "--zone", B, "--spot", "--ttl", "8h", "--label", "team=a b", "--name=n1")
        error = raised(StockoutError("No."), Search((B,), (B,), wait=60.0), typed=typed)
        commands = [line.partition(": ")[2] for line in error.hint.split("\n")[1:]]
        rest = "--spot --ttl 8h --label 'team=a b' --name=n1"
        (zone,) = set(commands[0].split()) & set(V3.zones)
        assert commands == [f"tpuctl up v3-8 --zone {name} {rest}" for name in (zone, "any")]
        assert zone != B

    def test_the_command_of_a_program_has_its_options_but_no_secrets(self) -> None:
        options = {
            "spot": True, "lifetime": Lifetime(ttl=28800, idle=1800), "labels": {"team": "a"},
            "framework": "jax", "tags": ("x", "y"), "secure_boot": True, "external_ips": False,
            "metadata": {"key": "secret"},
        }  # fmt: skip
        error = raised(StockoutError("No."), Search((B,)), **options)
        assert error.hint.endswith(
            ": tpuctl up v3-8 --name n1 --framework jax --label team=a --tag x --tag y --ttl 8h --idle 30m"
            " --spot --internal-ips --secure-boot --wait-capacity 6h"
        )

    def test_zones_that_the_network_does_not_reach_are_not_named(self) -> None:
        error = raised(StockoutError("No.", hint="Wait."), Search((B,)), subnetworks={"us-central1": "lab"})
        assert not set(V3.zones) & set(error.hint.replace(",", " ").split()) - {
            zone for zone in V3.zones if zone.startswith("us-central1-")
        }

    def test_of_several_zones_none_is_the_next(self) -> None:
        error = raised(StockoutError("No."), Search((A, B)))
        assert error.message == f"There is no capacity in any of {A}, {B}."
        assert error.hint == (
            "Keep trying: tpuctl up v3-8 --name n1 --framework jax --wait-capacity 6h\n"
            "Wait in all queues at once: tpuctl up v3-8 --name n1 --framework jax --race\n"
            "Try spot capacity: tpuctl up v3-8 --name n1 --framework jax --spot"
        )


class TestInterrupt:
    @pytest.mark.parametrize(
        ("search", "options", "command"),
        [
            (Search((B,)), {}, "tpuctl up v3-8 --name n1 --framework jax"),
            (Search((B,), named=(B,)), {"spot": True},
             f"tpuctl up v3-8 --name n1 --framework jax --spot --zone {B}"),
            (Search((B,)), {"typed": ("up", "v3-8", "--label", "a=b c")},
             "tpuctl up v3-8 --label 'a=b c' --name n1"),
            (Search((B,)), {"typed": ("up", "v3-8", "--name=n1")}, "tpuctl up v3-8 --name=n1"),
            (Search((B,)), {"typed": ("up", "v3-8", "--name", "n1")}, "tpuctl up v3-8 --name n1"),
        ],
    )  # fmt: skip
    def test_the_command_goes_on_with_what_it_began(
        self, search: Search, options: dict[str, Any], command: str
    ) -> None:
        error = raised(KeyboardInterrupt(), search, **options)
        assert isinstance(error, InterruptedByUser)
        assert error.message == f"Interrupted while 'n1' was being created; it may bill already in {B}."
        assert error.hint == f"Resume: {command}\nDelete it: tpuctl down n1"
        assert error.facts["may_bill"] == [f"n1 in {B}"]

    def test_of_several_zones_any_may_bill(self) -> None:
        error = raised(KeyboardInterrupt(), Search((A, B)))
        assert error.message.endswith(f"it may bill already in {A} or {B}.")
        assert error.facts["may_bill"] == [f"n1 in {A}", f"n1 in {B}"]


def after_the_create(error: Exception, provider: MemoryProvider | None = None) -> Exception:
    """Return what `up` raises where its node exists and its host answers with an error."""
    provider = provider or MemoryProvider()
    plan = plan_up(provider, KEY, OPTIONS, Search((B,)))
    with pytest.raises(type(error)) as caught:
        up(provider, MemorySsh(error), plan, lambda line: None)  # type: ignore[arg-type]
    return caught.value


class TestBill:
    def test_every_error_after_the_create_says_what_bills_where_and_both_commands(self) -> None:
        for name in errors.__all__:
            if name == "DeadlineError":
                continue  # that of the look at a host is the HostError of the last look
            error = after_the_create(getattr(errors, name)("It failed.", hint="Look."))
            assert isinstance(error, TpuctlError)
            assert error.message.endswith(f"Node 'n1' in {ZONE} bills."), (name, error.message)
            assert str(error) == error.message, name
            assert error.hint.endswith(
                "Resume: tpuctl up v3-8 --name n1 --framework jax\nDelete it: tpuctl down n1"
            ), name
            assert error.facts["may_bill"] == [f"n1 in {ZONE}"], name

    def test_a_bug_after_the_create_says_it_in_a_note(self) -> None:
        for kind in (RuntimeError, OSError, KeyError):
            bug = after_the_create(kind("It is a bug."))
            assert bug.__notes__ == [
                f"Node 'n1' in {ZONE} bills. Resume: tpuctl up v3-8 --name n1 --framework jax\n"
                "Delete it: tpuctl down n1"
            ]

    def test_a_node_of_somebody_else_that_took_the_name_is_not_to_be_deleted(self) -> None:
        provider = MemoryProvider()

        def taken(request: NodeRequest) -> None:
            provider.nodes["n1"] = node(labels={"managed-by": "tpuctl", "tpuctl-owner": owner_label("bob")})
            provider.nodes["n1"] = replace(provider.nodes["n1"], accelerator="v2-8")
            raise ConflictError("It exists.")

        provider.on_create = taken
        plan = plan_up(provider, KEY, OPTIONS, Search((B,)))
        with pytest.raises(StateError) as error:
            up(provider, MemorySsh(), plan, lambda line: None)  # type: ignore[arg-type]
        assert "may_bill" not in error.value.facts
        assert "tpuctl down" not in error.value.hint

    def test_a_request_that_still_waits_may_bill_and_a_node_that_is_lost_does_not(self) -> None:
        waiting = MemoryProvider()
        waiting.queue["q1"] = queued_resource()
        waiting.get_queued_resource = raises(StateError("It failed."))  # type: ignore[assignment,method-assign]
        lost = MemoryProvider()

        def preempted(request: NodeRequest) -> None:
            lost.nodes["n1"] = node(state=NodeState.PREEMPTED)
            raise StateError("It failed.")

        lost.on_create = preempted
        for provider, bill in ((waiting, f" Node 'n1' in {B} may bill."), (lost, "")):
            plan = plan_up(provider, KEY, OPTIONS, Search((B,)))
            with pytest.raises(StateError) as error:
                up(provider, MemorySsh(), plan, lambda line: None)  # type: ignore[arg-type]
            assert error.value.message == f"It failed.{bill}"

    def test_ctrl_c_during_the_look_at_what_bills_leaves_the_error(self) -> None:
        provider = MemoryProvider()

        def interrupted(zone: str | None = None) -> NodeList:
            raise KeyboardInterrupt

        def fail(request: NodeRequest) -> None:
            provider.list_nodes = interrupted  # type: ignore[method-assign]
            raise QuotaError("No quota.")

        provider.on_create = fail
        plan = plan_up(provider, KEY, OPTIONS, Search((B,)))
        with pytest.raises(QuotaError, match=f"No quota. Node 'n1' in {ZONE} may bill."):
            up(provider, MemorySsh(), plan, lambda line: None)  # type: ignore[arg-type]

    def test_where_nothing_was_created_nothing_does(self) -> None:
        error = raised(ConfigError("No right.", hint="Ask."), Search((B,)))
        assert (error.message, error.hint) == ("No right.", "Ask.")
        assert "may_bill" not in error.facts

    def test_what_terraform_keeps_is_not_to_be_deleted(self) -> None:
        provider = MemoryProvider(node(labels={"managed-by": "terraform"}))
        plan = plan_up(provider, KEY, OPTIONS, Search((B,)))
        with pytest.raises(HostError) as error:
            up(provider, MemorySsh(HostError("No login.")), plan, lambda line: None)  # type: ignore[arg-type]
        assert error.value.hint == "Resume: tpuctl up v3-8 --name n1 --framework jax"

    def test_a_preemption_says_what_makes_another(self) -> None:
        error = raised(PreemptedError("It is lost."), Search((B,)))
        assert error.hint == "Delete it, and create another: tpuctl up v3-8 --name n1 --framework jax"

    def test_a_silent_provider_may_hold_it(self) -> None:
        error = raised(DeadlineError("No answer."), Search((B,)))
        assert (error.message, "may_bill" in error.facts) == ("No answer.", False)


class TestRequests:
    """By which something is changed, for --dry-run."""

    def sent(self, provider: MemoryProvider, *zones: str, **search: Any) -> list[HttpRequest]:
        return requests(provider, plan_up(provider, KEY, OPTIONS, Search(zones or (B,), **search)))

    def test_one_create_for_each_zone(self) -> None:
        assert [item.method for item in self.sent(Zones(), A, B)] == ["CreateNode"] * 2

    def test_what_has_ended_is_deleted_unless_it_goes_already(self) -> None:
        lost, leaving = in_zone(A, state=NodeState.PREEMPTED), in_zone(B, state=NodeState.DELETING)
        sent = self.sent(Zones(lost, leaving), A, B)
        assert [item.method for item in sent] == ["DeleteNode", "CreateNode", "CreateNode"]

    def test_of_several_candidates_the_first_with_nodes_stays(self) -> None:
        race = race_id("ada")
        sent = self.sent(Zones(in_zone(A, race), in_zone(B, race)), A, B)
        assert [item.method for item in sent] == ["DeleteNode", "UpdateNode"]

    def test_a_race_waits_in_the_zones_that_are_missing(self) -> None:
        provider = Zones()
        queued = queued_resource()
        provider.queue["n1"] = replace(
            queued, id=replace(queued.id, zone=A, name="n1"), labels=in_zone(A, race_id("ada")).labels
        )
        sent = self.sent(provider, A, B, C, race=True)
        assert [item.method for item in sent] == ["CreateQueuedResource"] * 2

    def test_a_race_that_is_decided_creates_nothing(self) -> None:
        assert [item.method for item in self.sent(Zones(in_zone(A, race_id("ada"))), A, B, race=True)] == [
            "UpdateNode"
        ]

    def test_who_leaves_at_once_changes_no_keys(self) -> None:
        assert self.sent(MemoryProvider(node()), detach=True) == []
        stopped = self.sent(MemoryProvider(node(state=NodeState.STOPPED)), detach=True)
        assert [item.method for item in stopped] == ["StartNode"]
