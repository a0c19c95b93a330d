"""What `up` plans where something of the name exists, and which zones it may try."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tpuctl.errors import ConfigError, DeadlineError, StateError, UsageError
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import UpPlan, plan_up
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    Creation,
    Node,
    NodeList,
    NodeState,
    QueueState,
    SshKey,
    owner_label,
)
from tpuctl.nodes.candidates import RACE_LABEL, race_id

KEY = SshKey("ada", "ssh-ed25519 AAAA")
OPTIONS = UpOptions("v3-8", "n1", "ada", framework="jax")
A, B, C = "us-central1-a", ZONE, "europe-west4-a"


class Zones(MemoryProvider):
    """Several zones, of which some do not offer the type."""

    def __init__(self, *nodes: Node, offering: tuple[str, ...] = (A, B, C)) -> None:
        super().__init__()
        self.listed, self.offering = nodes, offering
        self.checked: list[Creation] = []

    def list_nodes(self, zone: str | None = None) -> NodeList:
        return NodeList(tuple(item for item in self.listed if zone in (None, item.zone)), self.unreachable)

    def list_accelerator_types(self, zone: str) -> list[str]:
        return ["v3-8"] if zone in self.offering else ["v2-8"]

    def check(self, creation: Creation) -> None:
        self.checked.append(creation)


def planned(
    provider: MemoryProvider, *zones: str, search: dict[str, Any] | None = None, **options: Any
) -> UpPlan:
    chosen = Search(zones or (B,), **(search or {}))
    return plan_up(provider, KEY, msgspec.structs.replace(OPTIONS, **options), chosen)


def in_zone(zone: str, race: str = "", **fields: Any) -> Node:
    plain = node(**fields)
    labels = {**plain.labels, RACE_LABEL: race} if race else plain.labels
    return replace(plain, id=replace(plain.id, zone=zone, uid=zone), labels=labels)


class TestNotApplied:
    def test_what_exists_keeps_its_labels_and_metadata(self) -> None:
        metadata = {"color": "blue", "tpuctl-ttl": "60s"}
        provider = MemoryProvider(node(labels={"team": "vision"}, metadata=metadata))
        same = planned(provider, labels={"team": "vision"}, metadata={"color": "blue"})
        assert same.not_applied == ()
        other = planned(
            provider, labels={"team": "audio", "cost": "7"}, metadata={"color": "red", "size": "9"},
            lifetime=Lifetime(ttl=61),
        )  # fmt: skip
        assert other.not_applied == (
            "--ttl", "--label team", "--label cost", "--metadata color", "--metadata size",
        )  # fmt: skip

    def test_a_queued_resource_has_those_of_its_nodes(self) -> None:
        provider = MemoryProvider()
        provider.queue["n1"] = replace(
            queued_resource(labels={"team": "vision"}), id=replace(queued_resource().id, name="n1")
        )
        plan = planned(provider, labels={"team": "audio"})
        assert plan.not_applied == ("--label team",)
        assert plan.stopped is None

    def test_a_new_one_gets_all(self) -> None:
        assert planned(MemoryProvider(), labels={"team": "vision"}).not_applied == ()


class TestExisting:
    def refused(self, provider: MemoryProvider, **options: Any) -> StateError:
        with pytest.raises(StateError) as error:
            planned(provider, **options)
        return error.value

    @pytest.mark.parametrize(
        ("fields", "options", "words"),
        [
            ({}, {"accelerator": "v2-8"}, "is a v3-8"),
            ({}, {"spot": True}, "is not spot"),
            ({}, {"runtime": "image-1"}, "has the runtime image-2"),
            ({}, {"lifetime": Lifetime(ttl=60)}, "has no --ttl"),
            ({}, {"lifetime": Lifetime(ttl=60, idle=60)}, "has no --ttl and has no --idle"),
            ({}, {"slices": 2}, "has 1 slice"),
        ],
    )
    def test_one_that_is_not_what_was_asked_for_is_refused(
        self, fields: dict[str, Any], options: dict[str, Any], words: str
    ) -> None:
        error = self.refused(MemoryProvider(node(**fields)), **options)
        assert error.message == f"Node 'n1' exists and {words}."
        assert error.hint == (
            "Give the new one another name with --name, or delete the old one: tpuctl down n1"
        )

    @pytest.mark.parametrize(
        ("fields", "options"),
        [
            ({"spot": True}, {"spot": False}), ({"spot": True}, {"spot": True}), ({}, {"runtime": "image-2"}),
            ({"metadata": {"tpuctl-ttl": "9s"}}, {"lifetime": Lifetime(ttl=60)}),
        ],
    )  # fmt: skip
    def test_what_was_not_asked_for_is_no_difference(
        self, fields: dict[str, Any], options: dict[str, Any]
    ) -> None:
        assert planned(MemoryProvider(node(**fields)), **options).existing

    @pytest.mark.parametrize(
        ("labels", "owner"), [({"managed-by": "terraform"}, "terraform"), ({}, "somebody else")]
    )
    def test_what_is_anothers_is_not_to_be_deleted(self, labels: dict[str, str], owner: str) -> None:
        error = self.refused(MemoryProvider(node(labels=labels)), spot=True)
        assert error.hint == f"Give the new one another name with --name: it belongs to {owner}."

    def test_a_queued_resource_is_called_one_and_has_its_slices(self) -> None:
        provider = MemoryProvider()
        two = (replace(node().id, name="n1-0"), replace(node().id, name="n1-1"))
        provider.queue["n1"] = queued_resource(id=replace(queued_resource().id, name="n1"), nodes=two)
        assert self.refused(provider).message == "Queued resource 'n1' exists and has 2 slices."
        assert planned(provider, slices=2).existing
        provider.queue["n1"] = replace(provider.queue["n1"], nodes=two[:1])
        assert self.refused(provider, slices=2).message == "Queued resource 'n1' exists and has 1 slice."

    @pytest.mark.parametrize(("owner", "words"), [("bob@x", "bob@x"), ("", "somebody else")])
    def test_what_has_ended_and_is_anothers_stays(self, owner: str, words: str) -> None:
        provider = MemoryProvider()
        labels = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("bob")} if owner else {}
        provider.queue["n1"] = queued_resource(
            QueueState.FAILED, id=replace(queued_resource().id, name="n1"), labels=labels,
            metadata={"tpuctl-owner": owner} if owner else {},
        )  # fmt: skip
        error = self.refused(provider)
        assert error.message == f"'n1' in {ZONE} has ended, and belongs to {words}."
        assert error.hint == "Give yours another name with --name, or ask its owner to delete it."
        provider.queue["n1"] = queued_resource(QueueState.FAILED, id=replace(queued_resource().id, name="n1"))
        plan = planned(provider)
        assert (plan.existing, [item.name for item in plan.ended]) == (None, ["n1"])


class TestZones:
    def test_one_zone_has_a_plain_creation(self) -> None:
        provider = Zones()
        plan = planned(provider, B)
        assert isinstance(plan.creation, CreateNode)
        assert RACE_LABEL not in plan.request.labels
        assert len(provider.checked) == 1

    def test_several_have_candidates_of_one_search_that_are_checked_with_their_labels(self) -> None:
        provider = Zones()
        plan = planned(provider, A, B)
        assert [item.request.id.zone for item in plan.creations] == [A, B]
        changes = [item for item in plan.creations if isinstance(item, CreateNode)]
        assert [item.request.labels[RACE_LABEL] for item in changes] == [race_id("ada")] * 2
        assert len(provider.checked) == 4

    def test_a_race_is_queued(self) -> None:
        plan = planned(Zones(), A, B, search={"race": True})
        assert all(isinstance(item, CreateQueuedResource) for item in plan.creations)
        assert (plan.request.id.name, plan.hosts, plan.chips) == ("n1", 1, 4)

    def test_a_zone_that_does_not_offer_the_type_is_left_out_unless_it_was_named(self) -> None:
        provider = Zones(offering=(B,))
        plan = planned(provider, A, B, search={"named": ("us-central1",)})
        assert [item.request.id.zone for item in plan.creations] == [B]
        for named in ((), (A, B)):
            with pytest.raises(UsageError, match=f"v3-8 is not offered in {A}"):
                planned(provider, A, B, search={"named": named})

    def test_where_none_offers_it_the_first_says_so(self) -> None:
        with pytest.raises(UsageError, match=f"v3-8 is not offered in {A}"):
            planned(Zones(offering=()), A, B, search={"named": ("any",)})

    def test_any_other_error_stands(self, monkeypatch: pytest.MonkeyPatch) -> None:
        provider = Zones()

        def fail(zone: str) -> list[str]:
            raise DeadlineError(f"no answer from {zone}") if zone == A else UsageError("none")

        monkeypatch.setattr(provider, "list_runtimes", fail)
        with pytest.raises(DeadlineError, match=f"no answer from {A}"):
            planned(provider, A, B, search={"named": ("any",)})

    def test_a_region_without_a_subnetwork_is_left_out_too(self) -> None:
        tables = {"subnetworks": {"us-central1": "lab"}}
        plan = planned(Zones(), C, B, search={"named": ("any",)}, **tables)
        assert [item.request.id.zone for item in plan.creations] == [B]
        with pytest.raises(ConfigError, match="europe-west4"):
            planned(Zones(), C, B, search={"named": (C, B)}, **tables)

    def test_what_exists_is_used_in_its_own_zone_alone(self) -> None:
        plan = planned(Zones(in_zone(B, race_id("ada"))), A, B, C)
        assert [item.request.id.zone for item in plan.creations] == [B]
        assert plan.existing
        assert plan.existing.zone == B

    def test_a_silent_zone_may_hold_another(self) -> None:
        provider = Zones()
        provider.unreachable = (A,)
        with pytest.raises(DeadlineError, match=f"{A}"):
            planned(provider, A, B)
        provider.unreachable = (C,)
        planned(provider, A, B)
        held = Zones(in_zone(B, race_id("ada")))
        held.unreachable = (A,)
        assert planned(held, A, B).existing

    def test_one_of_the_search_in_no_zone_of_it_is_named(self) -> None:
        provider = Zones(in_zone(C, race_id("ada")))
        with pytest.raises(StateError, match=f"'n1' is in {C} already"):
            planned(provider, A, B)

    def test_what_the_same_search_has_left_is_deleted_beside_what_lives(self) -> None:
        race = race_id("ada")
        lost = in_zone(A, race, state=NodeState.PREEMPTED)
        plain = in_zone(C, state=NodeState.PREEMPTED)
        plan = planned(Zones(in_zone(B, race), lost, plain), A, B, C)
        assert [item.zone for item in plan.ended] == [A]
        alone = planned(Zones(lost, plain), A, B, C)
        assert sorted(item.zone for item in alone.ended) == [C, A]
        direct = planned(Zones(in_zone(B), lost), A, B)
        assert direct.ended == ()


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("n", True), ("n" * 63, True), ("n" * 64, False), ("a-1", True), ("a-", False), ("-a", False),
        ("1a", False), ("a.b", False), ("a\n", False),
    ],
)  # fmt: skip
def test_names_are_those_that_the_api_takes(name: str, is_valid: bool) -> None:
    if is_valid:
        assert planned(MemoryProvider(), name=name).request.id.name == name
        return
    with pytest.raises(UsageError) as error:
        planned(MemoryProvider(), name=name)
    assert error.value.message == f"'{name}' cannot name a node."
