"""A search of several rounds and zones: what it asks again, and where the trouble of one zone ends."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest

from tests.crashes.channel import RefusedCall
from tests.crashes.faults import FAULTS, NAME, UP, ZONE, nothing
from tests.crashes.scenarios import BOTH, OTHER_ZONE, RACE
from tests.crashes.world import CrashWorld

QUEUED = ("--queued", "--wait-capacity", "6h")
FULL = {
    "code": "RESOURCE_EXHAUSTED",
    "message": "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. "
    "Limit 10000 in region us-west4",
}


DENIED = f"Permission denied on 'locations/{ZONE}' (or it may not exist)."
NO_TYPE = f"Cloud TPU received a bad request. the accelerator v3-8 was not found in zone {ZONE}"
OF_A_ZONE = (
    ("error", "INTERNAL", "an internal error has occurred"),
    ("failed-operation", "INTERNAL", "an internal error has occurred"),
    ("error", "PERMISSION_DENIED", DENIED),
    ("error", "INVALID_ARGUMENT", NO_TYPE),
)
OF_THE_PROJECT = (
    ("PERMISSION_DENIED", "Permission 'tpu.nodes.create' denied on resource.", "IAM_PERMISSION_DENIED"),
    ("PERMISSION_DENIED", "Cloud TPU API has not been used in project p before.", "SERVICE_DISABLED"),
    ("PERMISSION_DENIED", "This API method requires billing to be enabled.", "BILLING_DISABLED"),
)


def requests(world: CrashWorld) -> list[tuple[str, str]]:
    """The zone and the id of each request for a queued resource, in order."""
    events = world.world.events.find(kind="request", what="CreateQueuedResource")
    return [(event.resource.split("/")[3], str((event.body or {})["requestId"])) for event in events]


@pytest.mark.parametrize("command", [UP, BOTH])
def test_each_round_is_another_request(world: CrashWorld, command: Sequence[str]) -> None:
    zones = [ZONE, OTHER_ZONE] if command is BOTH else [ZONE]
    world.faults.add("failed-operation", method="CreateQueuedResource", count=3 * len(zones), **FULL)
    made = world.tpuctl(*command, *QUEUED)
    assert made.code == 0, made.err
    sent = requests(world)
    assert [zone for zone, _ in sent] == [*zones * 3, ZONE]
    assert len({number for _, number in sent}) == len(sent)
    assert [name.rpartition("/")[2] for name in world.billing] == [NAME, NAME], (
        "a node and what it was queued by"
    )


INTERNAL = {"code": "INTERNAL", "message": "an internal error has occurred"}


@pytest.mark.parametrize(
    ("kind", "refusal"), [("failed-operation", FULL), ("error", FULL), ("error", INTERNAL)]
)
def test_a_race_whose_candidates_all_fail_asks_again_in_each_round(
    world: CrashWorld, kind: str, refusal: dict[str, object]
) -> None:
    world.faults.add(kind, method="CreateQueuedResource", **refusal)

    def come_back(method: str, number: int, when: str) -> None:
        if len(set(requests(world))) == 6:  # in the third round
            world.faults.clear()

    world.interfere = come_back
    made = world.tpuctl(*RACE, "--wait-capacity", "1h")
    world.interfere = nothing
    assert made.code == 0, made.err
    sent = list(dict.fromkeys(requests(world)))
    rounds = [sorted(zone for zone, _ in sent[at : at + 2]) for at in range(0, len(sent), 2)]
    assert rounds == [sorted([ZONE, OTHER_ZONE])] * len(rounds)
    assert len(rounds) >= 3
    assert len({number for _, number in sent}) == len(sent)
    assert [name.rpartition("/")[2] for name in world.billing] == [NAME, NAME], "those of the winner"


def test_a_race_that_is_refused_leaves_nothing_in_the_queues(world: CrashWorld) -> None:
    """Without --wait-capacity at once; with it when the time is over."""
    world.faults.add("failed-operation", method="CreateQueuedResource", **FULL)
    for options in ((), ("--wait-capacity", "10m")):
        before = world.time
        refused = world.tpuctl(*RACE, *options)
        assert refused.code == 6, refused.err
        assert world.billing == []
        assert ((world.time - before).total_seconds() > 300) is bool(options)
    world.faults.clear()
    world.faults.add("stockout")
    refused = world.tpuctl(*RACE, "--wait-capacity", "10m")
    assert (refused.code, world.billing) == (5, []), refused.err


def test_a_race_ends_at_once_where_the_project_is_refused(world: CrashWorld) -> None:
    for code, message, reason in OF_THE_PROJECT:
        world.faults.clear()
        world.faults.add("error", method="CreateQueuedResource", code=code, message=message, reason=reason)
        refused = world.tpuctl(*RACE, "--wait-capacity", "1h")
        assert refused.code == 3, refused.err
        assert world.latest.count("CreateQueuedResource") == 2, "one a zone"


def test_the_time_to_wait_is_that_of_all_rounds_together(world: CrashWorld) -> None:
    world.faults.add("failed-operation", method="CreateQueuedResource", count=3, **FULL)
    world.faults.add("stockout")
    before = world.time
    refused = world.tpuctl(*UP, "--queued", "--wait-capacity", "10m")
    assert (refused.code, world.billing) == (5, []), refused.err
    assert len(requests(world)) == 4
    assert (world.time - before).total_seconds() < 11 * 60


def test_a_zone_without_capacity_is_left_and_tried_again(world: CrashWorld) -> None:
    world.faults.add("stockout")

    def come_back(method: str, number: int, when: str) -> None:
        if len(requests(world)) == 5:  # in the third round
            world.faults.clear()

    world.interfere = come_back
    made = world.tpuctl(*BOTH, *QUEUED)
    world.interfere = nothing
    assert made.code == 0, made.err
    sent = requests(world)
    assert [zone for zone, _ in sent] == [ZONE, OTHER_ZONE, ZONE, OTHER_ZONE, ZONE]
    assert len(set(sent)) == len(sent)
    assert "PROVISIONING" not in made.err.partition("attempt 2")[0], "it waits where there is no capacity"


@pytest.mark.parametrize(
    ("fault", "options"),
    [("failed-operation", FULL), ("stuck-operation", {})],
    ids=["waits again", "never ends"],
)
def test_a_zone_that_only_provisions_is_left_within_half_an_hour(
    world: CrashWorld, fault: str, options: dict[str, object]
) -> None:
    world.faults.add(fault, method="CreateNode", zone=ZONE, **options)
    begin = world.time
    made = world.tpuctl(*BOTH, *QUEUED)
    assert made.code == 0, made.err
    assert [zone for zone, _ in requests(world)] == [ZONE, OTHER_ZONE]
    assert {name.split("/")[3] for name in world.billing} == {OTHER_ZONE}
    assert (world.time - begin).total_seconds() < 1800


@pytest.mark.parametrize(("kind", "code", "message"), OF_A_ZONE)
def test_the_trouble_of_one_zone_leads_to_the_next(
    world: CrashWorld, kind: str, code: str, message: str
) -> None:
    world.faults.add(kind, method="CreateNode", zone=ZONE, code=code, message=message)
    made = world.tpuctl(*BOTH)
    assert made.code == 0, made.err
    assert f"not in {ZONE}: " in made.err
    assert message in made.err
    assert [name.split("/")[3] for name in world.billing] == [OTHER_ZONE]


@pytest.mark.parametrize(("kind", "code", "message"), OF_A_ZONE[:2])
def test_what_a_service_fails_at_is_tried_again_in_the_next_round(
    world: CrashWorld, kind: str, code: str, message: str
) -> None:
    world.faults.add(kind, method="CreateNode", code=code, message=message, count=2)
    made = world.tpuctl(*UP, "--wait-capacity", "1h")
    assert made.code == 0, made.err
    assert len(world.billing) == 1


@pytest.mark.parametrize(("code", "message", "reason"), OF_THE_PROJECT)
def test_the_trouble_of_the_project_ends_it_at_once(
    world: CrashWorld, code: str, message: str, reason: str
) -> None:
    world.faults.add("error", method="CreateNode", code=code, message=message, reason=reason)
    refused = world.tpuctl(*BOTH, "--wait-capacity", "1h")
    assert refused.code == 3, refused.err
    assert world.latest.count("CreateNode") == 1


def test_a_zone_whose_service_fails_once_something_is_there_is_not_left(world: CrashWorld) -> None:
    """What was created there bills: another in the next zone would be a second one."""
    failed = list[str]()

    def fail(method: str, number: int, when: str) -> None:
        if world.world.nodes.all() and method == "GetNode" and when == "before":
            failed.append(method)
            raise RefusedCall(grpc.StatusCode.INTERNAL, "an internal error has occurred")

    world.interfere = fail
    ended = world.tpuctl(*BOTH)
    world.interfere = nothing
    assert failed
    assert ended.code == 9, ended.err
    assert f"tpuctl down {NAME}" in ended.err
    assert [name.split("/")[3] for name in world.billing] == [ZONE]


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("preempted", 7, f"Node '{NAME}' is PREEMPTED."),
        ("deleted by another", 4, f"Queued resource '{NAME}' in {ZONE} is SUSPENDED."),
    ],
)
def test_a_race_whose_winner_is_lost_while_the_others_leave_ends(
    world: CrashWorld, fault: str, code: int, text: str
) -> None:
    """It was waited for an hour, for the others to be deleted."""

    def interfere(method: str, number: int, when: str) -> None:
        if method == "DeleteQueuedResource":
            FAULTS[fault].interference(world, number)(method, number, when)

    world.interfere = interfere
    before = world.time
    raced = world.tpuctl(*RACE)
    assert (raced.code, text in raced.err) == (code, True), raced.err
    assert (world.time - before).total_seconds() < 20 * 60
    world.interfere = nothing
    assert world.tpuctl("down", NAME, "--yes").code in {0, 4}
    assert world.billing == []
