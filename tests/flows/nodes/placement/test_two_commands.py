"""Tests two `up` of one name, in every order of their requests that a seed draws, killed and repeated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemorySsh, queued_resource
from tests.flows.nodes.placement.zoned_provider import (
    Command,
    Killed,
    Place,
    ZonedProvider,
    by_thread,
    take_turns,
)
from tests.flows.nodes.test_up import KEY, OPTIONS
from tests.flows.passing_time import PassingTime
from tpuctl import parallel
from tpuctl.cloud.provider import Operation
from tpuctl.errors import ConflictError, NotFoundError, StateError, TpuctlError
from tpuctl.flows.nodes.down import down, plan_down
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import plan_up
from tpuctl.flows.nodes.up import up
from tpuctl.flows.progress import Report, silent
from tpuctl.nodes import (
    LABEL,
    LABEL_VALUE,
    OWNER_LABEL,
    Change,
    DeleteQueuedResource,
    NodeId,
    NodeState,
    QueuedResourceRequest,
    QueueState,
    owner_label,
)
from tpuctl.nodes.candidates import RACE_LABEL

A, B, C, D = "us-central1-a", "us-central1-b", "us-east1-d", "us-east5-a"
SEEDS = int(os.environ.get("TURNS", "150"))
MODES = pytest.mark.parametrize(
    "races",
    [(False, False), (True, True), (False, True)],
    ids=["one after the other", "races", "a race and none"],
)


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch, passing_time: PassingTime) -> Iterator[None]:
    """One request at a time in each command, and waits that take no time."""
    monkeypatch.setattr(parallel.fanout, "__defaults__", (1,))
    yield
    by_thread.clear()


class SlowDeletes(ZonedProvider):
    """Queued resources that are DELETING for ever."""

    def _move_queue(self, place: Place) -> None:
        if self.queues[place].state is not QueueState.DELETING:
            super()._move_queue(place)


def run_up(
    provider: ZonedProvider,
    zones: tuple[str, ...],
    *,
    race: bool,
    report: Report = silent,
    owner: str = "ada",
    queued: bool = False,
) -> Allocation:
    search = Search(zones, zones, race=race, wait=3600.0)
    plan = plan_up(provider, KEY, msgspec.structs.replace(OPTIONS, owner=owner, queued=queued), search)
    return up(provider, MemorySsh(), plan, report)  # type: ignore[arg-type]


def test_a_race_returns_once_the_others_are_surely_being_deleted_and_says_so() -> None:
    provider, lines = SlowDeletes({A: 1, B: 1, C: 0}), list[str]()
    winner = run_up(provider, (A, B, C), race=True, report=lines.append)
    leaving = {zone for zone, _ in provider.queues} - {winner.zone}
    assert {provider.queues[zone, "n1"].state for zone in leaving} == {QueueState.DELETING}
    assert leaving
    (said,) = [line for line in lines if "still being deleted" in line]
    assert all(zone in said for zone in leaving)


def command(provider: ZonedProvider, zones: tuple[str, ...], race: bool) -> Command:
    return Command(f"{zones}", lambda: run_up(provider, zones, race=race))


def commands(provider: ZonedProvider, races: tuple[bool, bool]) -> list[Command]:
    """Two commands with the same zones in another order, each a race or not."""
    orders = ((A, B, C), (C, A, B))
    return [command(provider, zones, race) for zones, race in zip(orders, races, strict=True)]


def places(provider: ZonedProvider) -> list[tuple[str, str]]:
    """What bills or may come to bill: all but what is being deleted."""
    queues = (place for place, queued in provider.queues.items() if queued.state is not QueueState.DELETING)
    return sorted({*provider.placed, *queues})


@MODES
@pytest.mark.parametrize("capacity", [{A: 1, B: 1, C: 1}, {A: 0, B: 1, C: 1}], ids=["everywhere", "not in A"])
def test_two_commands_make_one_node_in_every_order(
    capacity: dict[str, int], races: tuple[bool, bool]
) -> None:
    for seed in range(SEEDS):
        provider = ZonedProvider(capacity, seed)
        both = commands(provider, races)
        take_turns(both, seed)
        assert [command.error for command in both] == [None, None], f"seed {seed}"
        assert len(places(provider)) == 1, f"seed {seed}"
        zones = {command.result.zone for command in both if isinstance(command.result, Allocation)}
        assert [(zone, "n1") for zone in zones] == places(provider), f"seed {seed}: both use the same node"
        assert provider.placed[places(provider)[0]].state is NodeState.READY


@MODES
@pytest.mark.parametrize("zones", [((A, B), (B, C)), ((A, B), (C, D))], ids=["B in common", "none in common"])
@pytest.mark.parametrize("full", [(), (B,)], ids=["capacity everywhere", "not in B"])
def test_two_commands_with_other_zones_make_one_node(
    zones: tuple[tuple[str, ...], ...], full: tuple[str, ...], races: tuple[bool, bool]
) -> None:
    for seed in range(SEEDS):
        provider = ZonedProvider({zone: int(zone not in full) for zone in (A, B, C, D)}, seed)
        both = [command(provider, own, race) for own, race in zip(zones, races, strict=True)]
        take_turns(both, seed)
        assert len(places(provider)) == 1, f"seed {seed}"
        assert provider.placed[places(provider)[0]].state is NodeState.READY
        users = [item for item in both if isinstance(item.result, Allocation)]
        assert users, f"seed {seed}: {both[0].error}, {both[1].error}"
        assert {(item.result.zone, "n1") for item in users} == set(places(provider)), f"seed {seed}"
        errors = [item.error for item in both if item not in users]
        assert all("by another 'tpuctl up'" in str(error) for error in errors), f"seed {seed}: {errors}"


@pytest.mark.parametrize("race", [False, True], ids=["one after the other", "a race"])
@pytest.mark.parametrize("zone", [A, B])
def test_the_tpu_that_another_owner_creates_meanwhile_is_never_deleted(zone: str, race: bool) -> None:
    for seed in range(SEEDS):
        provider = ZonedProvider({A: 1, B: 1, C: 1}, seed)
        other = Command("other", lambda: run_up(provider, (zone,), race=False, owner="bob"))  # noqa: B023
        take_turns([command(provider, (A, B, C), race), other], seed)
        if isinstance(other.result, Allocation) and other.result.is_owned_by("bob"):
            assert provider.placed.get((zone, "n1")) in other.result.nodes, f"seed {seed}"
        assert "deleted" not in str(other.error), f"seed {seed}: {other.error}"


@pytest.mark.parametrize("queued", [False, True], ids=["node", "queued"])
@pytest.mark.parametrize("owner", ["ada", "bob"])
def test_what_a_command_for_a_single_zone_has_returned_is_never_deleted_by_a_race(
    owner: str, queued: bool
) -> None:
    for seed in range(SEEDS):
        provider = ZonedProvider({A: 1, B: 1, C: 1}, seed)
        single = Command(
            "single",
            lambda: run_up(provider, (B,), race=False, owner=owner, queued=queued),  # noqa: B023
        )
        race = command(provider, (A, B, C), race=True)
        take_turns([race, single], seed)
        results = [item.result for item in (race, single) if isinstance(item.result, Allocation)]
        assert results, f"seed {seed}: {race.error}, {single.error}"
        for result in results:
            assert provider.placed.get((result.zone, "n1")) in result.nodes, f"seed {seed}"
        for error in filter(None, (race.error, single.error)):
            assert isinstance(error, (StateError, NotFoundError)), f"seed {seed}: {error!r}"
            assert "n1" in error.message, f"seed {seed}"
            assert any(word in error.hint for word in ("tpuctl", "--zone", "--name")), (
                f"seed {seed}: {error!r}"
            )


def test_a_race_only_withdraws_the_younger_request_of_a_single_zone_whose_nodes_may_come_now() -> None:
    class Recording(ZonedProvider):
        def begin(self, change: Change) -> Operation:
            if isinstance(change, DeleteQueuedResource):
                forces.append(change.force)
            return super().begin(change)

    forces: list[bool] = []
    provider, waiting = Recording({A: 1, B: 0}), queued_resource()
    provider.queues[B, "n1"] = replace(
        waiting,
        id=replace(waiting.id, zone=B, name="n1"),
        nodes=(NodeId("memory", "p", B, "n1"),),
        labels={LABEL: LABEL_VALUE, OWNER_LABEL: owner_label("ada")},
        created_at=1e6,
    )
    assert run_up(provider, (A, B), race=True).zone == A
    assert forces == [False]


def test_a_race_whose_zones_another_owner_takes_names_the_owner_and_the_next_command() -> None:
    class Taken(ZonedProvider):
        """Where another owner's requests arrive just before the race's."""

        def _create_queued(self, request: QueuedResourceRequest) -> Operation:
            labels = {**request.node.labels, OWNER_LABEL: owner_label("bob")}
            labels.pop(RACE_LABEL)
            super()._create_queued(
                replace(request, node=msgspec.structs.replace(request.node, labels=labels))
            )
            raise ConflictError("It exists.")

    provider = Taken({A: 0, B: 0, C: 0})
    with pytest.raises(StateError) as raised:
        run_up(provider, (A, B, C), race=True)
    assert raised.value.message.startswith(f"'n1' in {A}, {B}, {C} belongs to ")
    assert "another name with --name" in raised.value.hint
    assert f"'tpuctl up' with --name n1 --zone {A}" in raised.value.hint
    assert {queued.state for queued in provider.queues.values()} == {QueueState.WAITING}


@pytest.mark.parametrize(
    ("zones", "race"),
    [((A,), False), ((A, B), False), ((A, B), True)],
    ids=["one zone", "one after the other", "a race"],
)
def test_the_request_of_another_owner_stays_in_its_queue(zones: tuple[str, ...], race: bool) -> None:
    provider = ZonedProvider({A: 0, B: 1})
    waiting = queued_resource()
    provider.queues[A, "n1"] = replace(
        waiting,
        id=replace(waiting.id, zone=A, name="n1"),
        nodes=(NodeId("memory", "p", A, "n1"),),
        labels={LABEL: LABEL_VALUE, OWNER_LABEL: owner_label("bob")},
        created_at=0.5,
    )
    with suppress(TpuctlError):
        run_up(provider, zones, race=race)
    assert provider.queues[A, "n1"].state is QueueState.WAITING


@MODES
def test_killed_anywhere_the_same_command_goes_on(races: tuple[bool, bool]) -> None:
    for seed in range(SEEDS):
        provider = ZonedProvider({A: 0, B: 1, C: 1}, seed)
        killed = commands(provider, races)
        take_turns(killed, seed, kills=0.05)
        used = [command.result for command in killed if isinstance(command.result, Allocation)]
        errors = [command.error for command in killed if not isinstance(command.error, (Killed, type(None)))]
        assert errors == [], f"seed {seed}"
        allocation = run_up(provider, (B, C, A), race=races[0])
        assert places(provider) == [(allocation.zone, "n1")], f"seed {seed}"
        for result in used:
            assert result.nodes[0].id == allocation.nodes[0].id, f"seed {seed}: a node in use was deleted"


@MODES
def test_killed_anywhere_down_ends_everything(races: tuple[bool, bool]) -> None:
    for seed in range(SEEDS):
        provider = ZonedProvider({A: 0, B: 1, C: 1}, seed)
        take_turns(commands(provider, races), seed, kills=0.1)
        while places(provider):
            try:
                down(provider, plan_down(provider, ["n1"], "ada"), lambda line: None)
            except (StateError, TpuctlError) as error:
                raise AssertionError(f"seed {seed}: {error}") from error
