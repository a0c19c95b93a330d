"""Tests `up` with several zones against the simulator: in order, or raced.

Stockouts, quotas, and what is left.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.catalogue.prices import Price
from tpuctl.cli.nodes.creation_options import lifetime_text, note_order, zone_facts
from tpuctl.client.nodes.creation import price_text
from tpuctl.cloud.tpu import api_requests
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.placement import rounds
from tpuctl.polling import Backoff, poll
from tpuctl.sim.catalogue import billing
from tpuctl.sim.catalogue.billing import skus

Tpuctl = Callable[..., CommandResult]
A, B, C = "europe-west4-a", "us-central1-a", "us-east1-d"
UP = ("up", "v3-8", "--name", "n1", "--zone", A, "--zone", B, "--yes")


def zones_with_nodes(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.split("/")[3] for node in simulator.world.nodes.all())


def test_the_first_zone_is_used_where_it_has_capacity(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert zones_with_nodes(simulator) == [A]
    assert f"{A}, else {B}" in result.err


def test_a_stockout_leads_to_the_next_zone(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout", zone=A)
    result = tpuctl(*UP, "--json")
    assert result.code == 0, result.err
    assert [node["zone"] for node in result.json["nodes"]] == [B]
    assert zones_with_nodes(simulator) == [B]
    assert f"no capacity in {A}" in result.err


def test_a_limit_on_requests_per_minute_is_no_lack_of_capacity(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_requests, "RATE_PAUSES", Backoff(first=0.01))
    limit = "Quota exceeded for quota metric 'M' and limit 'Read requests per minute' of service S."
    for method in ("CreateNode", "GetOperation", "GetNode"):
        simulator.faults.add("error", method=method, code="RESOURCE_EXHAUSTED", message=limit, count=2)
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert zones_with_nodes(simulator) == [A]
    sent = simulator.events.find(kind="request", what="CreateNode")
    assert [event.resource.split("/")[3] for event in sent] == [A, A, A]


@pytest.mark.parametrize("method", ["CreateNode", "ListOperations"])
def test_a_request_without_an_answer_ends_no_wait_for_capacity(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(rounds, "ROUNDS", Backoff(first=0.01))
    monkeypatch.setattr(api_requests, "RETRY_TIMEOUT", 0.0)
    simulator.faults.add("unavailable", method=method, count=1)
    result = tpuctl(*UP, "--wait-capacity", "6h")
    assert result.code == 0, result.err
    assert (
        f"The service that knows about Node 'n1'{' (v3-8)' * (method == 'CreateNode')} in {A}" in result.err
    )
    assert zones_with_nodes(simulator) == [A]


def test_a_stockout_everywhere_names_all_zones(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout")
    result = tpuctl(*UP)
    assert result.code == 5
    assert f"There is no capacity in any of {A}, {B}." in result.err
    assert "--wait-capacity 6h" in result.err
    assert zones_with_nodes(simulator) == []


def test_a_zone_without_quota_is_passed_over(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=A, limit=0)
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert zones_with_nodes(simulator) == [B]


def test_quota_0_everywhere_is_not_tried_again(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", limit=0)
    result = tpuctl(*UP, "--wait-capacity", "6h")
    assert result.code == 6, result.err
    assert "quota" in result.err.lower()


def test_a_missing_permission_is_not_tried_again(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("permission", method="CreateNode")
    result = tpuctl(*UP, "--wait-capacity", "6h")
    assert result.code == 3, result.err
    assert "tpu.nodes.create" in result.err


def test_a_zone_that_the_project_may_not_use_is_passed_over_with_any(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    simulator.faults.add("zone-denied", zone=A)
    result = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any", "--yes")
    assert result.code == 0, result.err
    assert A not in zones_with_nodes(simulator)


def test_any_begins_in_the_region_of_the_bucket(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    planned = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any", "--dry-run", "--json")
    assert planned.code == 0, planned.err
    zones = [request["url"].split("/")[7] for request in planned.json["requests"]]
    assert zones[0] == A, "the simulator's bucket is in europe-west4"
    assert len(zones) > 2
    assert "Each create is sent only if" in planned.err
    assert zones_with_nodes(simulator) == []


def test_a_zone_without_quota_is_tried_last_and_marked(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=A, limit=0)
    shown = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any").err
    (line,) = [line for line in shown.splitlines() if re.match("zone +[a-z]", line)]
    assert line.endswith(f", else {A} (no quota)"), line
    simulator.faults.add("api-off", api="cloudquotas")
    shown = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any").err
    assert re.search(f"zone +{A}, else", shown), "where quotas cannot be read, none is missing"


def test_a_zone_without_a_price_is_tried_last_and_marked(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.faults.add("api-off", api="cloudbilling")
    shown = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any").err
    assert re.search(f"zone +{A}, else", shown), "where no price list can be read, no price is missing"
    simulator.faults.clear()
    monkeypatch.setattr(
        billing, "skus", lambda service: [sku for sku in skus(service) if sku["serviceRegions"] != [A[:-2]]]
    )
    shown = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any").err
    (line,) = [line for line in shown.splitlines() if re.match("zone +[a-z]", line)]
    assert line.endswith(f", else {A} (no price)"), line


def test_spot_tpus_are_looked_for_where_they_are_cheap(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    Path("tpuctl.toml").write_text('[prices]\n"v6e@us-east5" = { on_demand = 0.01, spot = 0.01 }\n')
    words = ("up", "v6e-8", "--name", "n1", "--zone", "us-central1", "--zone", "any", "--dry-run", "--json")
    for option, first in (((), "us-east1-d"), (("--spot",), "us-east5-a")):
        requests = tpuctl(*words, *option).json["requests"]
        zones = [request["url"].split("/")[7] for request in requests]
        others = [zone for zone in zones if zone.startswith("us-") and not zone.startswith("us-central1")]
        assert zones[0].startswith("us-central1"), "what is named first stays first"
        assert others[0] == first, zones


def test_far_regions_are_warned_of_in_one_sentence_and_prices_elsewhere_are_shown(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    shown = tpuctl("up", "v3-8", "--name", "n1", "--zone", "any").err
    (warning,) = [line for line in shown.splitlines() if line.startswith("Warning: ")]
    assert re.search("us-[a-z0-9-]+ and us-[a-z0-9-]+ are in other regions", warning)
    assert "; elsewhere " in shown


def test_a_region_stands_for_its_zones(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    planned = tpuctl("up", "v2-8", "--name", "n1", "--zone", "us-central1", "--dry-run", "--json")
    zones = [request["url"].split("/")[7] for request in planned.json["requests"]]
    assert len(zones) > 1
    assert all(zone.startswith("us-central1-") for zone in zones)


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    ("zone", "words"), [("mars1", "No zone of 'mars1'"), ("US-Central1-a", "cannot be the zone")]
)
def test_what_is_neither_zone_nor_region_is_refused(tpuctl: Tpuctl, zone: str, words: str) -> None:
    result = tpuctl("up", "v3-8", "--zone", zone, "--yes")
    assert result.code == 2
    assert words in result.err


def test_a_node_in_another_zone_of_the_list_is_used(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--zone", B, "--yes").code == 0
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert f"n1 exists in {B}" in result.err
    assert zones_with_nodes(simulator) == [B]


def test_a_silent_zone_that_may_hold_it_is_an_error(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("unreachable", zone=B)
    result = tpuctl(*UP)
    assert result.code == 9
    assert f"No answer from {B}: 'n1' may be there." in result.err
    assert zones_with_nodes(simulator) == []


def test_a_silent_zone_of_no_concern_is_no_error(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("unreachable", zone=C)
    assert tpuctl(*UP).code == 0


def test_a_name_in_two_zones_is_ambiguous(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    for zone in (A, B):
        assert tpuctl("up", "v3-8", "--name", "n1", "--zone", zone, "--yes").code == 0
    result = tpuctl(*UP)
    assert result.code == 4
    assert "There are 2 TPUs called 'n1'" in result.err
    assert zones_with_nodes(simulator) == [A, B]


def test_what_has_ended_is_replaced_in_another_zone(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    assert tpuctl(*UP).code == 0
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{A}/nodes/n1"))
    simulator.faults.add("stockout", zone=A)
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert zones_with_nodes(simulator) == [B]


def test_a_stopped_node_is_started(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    assert tpuctl(*UP).code == 0
    simulator.call(stop(simulator, A))
    assert tpuctl(*UP[:-1]).code == 10, "it asks: the node bills again"
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert [node.state for node in simulator.world.nodes.all()] == ["READY"]


async def stop(simulator: RunningSimulator, zone: str) -> None:
    operation = simulator.world.nodes.stop(f"projects/sim-project/locations/{zone}/nodes/n1")
    await simulator.world.operations.wait(operation.name, 30)


def planned(*zones: str, race: bool = False, wait: int = 0, existing: object = None) -> Any:
    """As much of a plan as its facts need."""
    creations = [SimpleNamespace(request=SimpleNamespace(id=SimpleNamespace(zone=zone))) for zone in zones]
    search = SimpleNamespace(race=race, wait=wait, flaws={"us-flawed": "no quota"})
    return SimpleNamespace(creations=creations, search=search, existing=existing)


@pytest.mark.parametrize(
    ("plan", "facts"),
    [
        (planned(A), {"zone": A}),
        (planned(A, race=True, wait=60), {"zone": A, "wait": "up to 1m for capacity"}),
        (planned(A, B, C), {"zone": f"{A}, else {B}, else {C}"}),
        (planned(A, "us-flawed"), {"zone": f"{A}, else us-flawed (no quota)"}),
        (planned(A, B, wait=7200), {"zone": f"{A}, else {B}", "wait": "up to 2h for capacity"}),
        (planned(A, B, race=True), {"zone": f"the first with capacity of {A}, {B}: all queues at once"}),
    ],
)
def test_zones_are_shown_in_their_order_with_the_wait(plan: Any, facts: dict[str, str]) -> None:
    assert zone_facts(plan) == facts


@pytest.mark.parametrize(
    ("plan", "is_said"),
    [
        (planned(A, B), True),
        (planned(A), False),
        (planned(A, B, race=True), False),
        (planned(A, B, existing="a node"), False),
    ],
)
def test_only_where_creates_follow_each_other_that_is_said(
    plan: Any, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    note_order(plan)
    said = "Each create is sent only if there is no capacity in the zones before it.\n"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", said if is_said else "")


@pytest.mark.parametrize(
    ("amounts", "elsewhere"),
    [
        (["8"], ""),
        (["8", "8", "8"], ""),
        (["8", None], ""),
        (["8", "9"], "; elsewhere 9.00 USD"),
        (["8", "9", "8"], "; elsewhere 8.00 USD to 9.00 USD"),
        (["8", "10", "9", None], "; elsewhere 9.00 USD to 10.00 USD"),
        ([None, "9"], "; elsewhere 9.00 USD"),
    ],
)
def test_a_price_is_that_of_the_first_zone_and_from_least_to_most_elsewhere(
    amounts: list[str | None], elsewhere: str
) -> None:
    prices = [Price(Decimal(amount) if amount else None, "USD") for amount in amounts]
    context: Any = SimpleNamespace(prices=SimpleNamespace(of_creation=prices.__getitem__))
    plan: Any = SimpleNamespace(creations=range(len(prices)))
    assert price_text(context, plan) == f"{prices[0]}{elsewhere}"


@pytest.mark.parametrize(
    ("lifetime", "text"),
    [
        (Lifetime(0, 0), "until 'tpuctl down'"),
        (Lifetime(28_800, 0), "8h (--ttl); then it deletes itself"),
        (Lifetime(0, 1_800), "30m without use (--idle); then it deletes itself"),
        (Lifetime(28_800, 1_800), "8h (--ttl), or 30m without use (--idle); then it deletes itself"),
    ],
)
def test_the_end_of_a_tpu_is_shown_before_it_is_created(lifetime: Lifetime, text: str) -> None:
    assert lifetime_text(lifetime) == text


ZONES = ("--zone", A, "--zone", B, "--zone", C)
RACE = ("up", "v3-8", "--name", "n1", *ZONES, "--race", "--yes")


def fill(simulator: RunningSimulator, *zones: str) -> None:
    """Leave no capacity in these zones."""
    for zone in zones:
        simulator.world.capacity.limits[zone, "v3-8"] = 0


def nodes(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.split("/")[3] for node in simulator.world.nodes.all())


def queued(simulator: RunningSimulator) -> list[str]:
    return sorted(item.name.split("/")[3] for item in simulator.world.queued_resources.all())


def started(*arguments: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return commands.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until_queued(simulator: RunningSimulator, zones: int) -> None:
    """Return when so many zones have a candidate."""
    poll(lambda: len(queued(simulator)) == zones or None, awaiting="the candidates", timeout=60)


@pytest.mark.daily
def test_the_zone_with_capacity_wins_and_the_others_are_cancelled(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator, A, C)
    result = tpuctl(*RACE, "--json")
    assert result.code == 0, result.err
    assert [node["zone"] for node in result.json["nodes"]] == [B]
    assert (nodes(simulator), queued(simulator)) == ([B], [B])


@pytest.mark.daily
def test_where_all_have_capacity_one_stays(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    result = tpuctl(*RACE)
    assert result.code == 0, result.err
    assert len(nodes(simulator)) == 1
    assert nodes(simulator) == queued(simulator)


def test_a_race_without_capacity_ends_after_the_time_and_leaves_nothing(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator, A, B, C)
    result = tpuctl(*RACE, "--wait-capacity", "1s")
    assert result.code == 5, result.err
    assert "out of the queues again" in result.err
    assert (nodes(simulator), queued(simulator)) == ([], [])


@pytest.mark.usefixtures("simulator")
def test_a_race_takes_several_zones(tpuctl: Tpuctl) -> None:
    result = tpuctl("up", "v3-8", "--race", "--zone", A, "--yes")
    assert result.code == 2
    assert "--race takes several zones" in result.err


def test_a_candidate_that_is_refused_leaves_the_race(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=A, limit=0)
    fill(simulator, B)
    result = tpuctl(*RACE)
    assert result.code == 0, result.err
    assert nodes(simulator) == [C]
    assert f"not in {A}" in result.err


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_after_the_command_has_ended_ls_shows_the_candidates_and_down_deletes_all(
    tpuctl: Tpuctl, simulator: RunningSimulator, end: signal.Signals
) -> None:
    fill(simulator, A, B, C)
    command = started(*RACE)
    wait_until_queued(simulator, 3)
    os.killpg(command.pid, end)
    output, _ = command.communicate(timeout=60)
    if end is signal.SIGINT:
        assert command.returncode == 130, output
        assert "may bill" in output
        assert "tpuctl down n1" in output
    listed = tpuctl("ls", "--json").json["queued_resources"]
    assert sorted(item["zone"] for item in listed) == sorted([A, B, C])
    assert len({item["labels"]["tpuctl-race"] for item in listed}) == 1
    assert tpuctl("down", "n1", "--yes").code == 0
    assert queued(simulator) == []


def test_the_same_command_goes_on_with_a_race_that_was_killed(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    fill(simulator, A, B, C)
    command = started(*RACE)
    wait_until_queued(simulator, 3)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=60)
    assert "is not decided" in tpuctl("wait", "n1").err
    del simulator.world.capacity.limits[C, "v3-8"]
    result = tpuctl(*RACE)
    assert result.code == 0, result.err
    assert (nodes(simulator), queued(simulator)) == ([C], [C])


@pytest.mark.parametrize("order", [(A, B, C), (C, A, B)])
def test_two_races_at_once_leave_one_node(
    tpuctl: Tpuctl, simulator: RunningSimulator, order: tuple[str, ...]
) -> None:
    zones = [word for zone in order for word in ("--zone", zone)]
    commands = [started(*RACE), started("up", "v3-8", "--name", "n1", *zones, "--race", "--yes")]
    outputs = [command.communicate(timeout=120)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outputs
    assert len(nodes(simulator)) == 1, outputs
    assert nodes(simulator) == queued(simulator)


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A)])
def test_two_commands_with_several_zones_at_once_leave_one_node(
    tpuctl: Tpuctl, simulator: RunningSimulator, order: tuple[str, ...]
) -> None:
    simulator.faults.add("slow-operation", method="CreateNode", seconds=1)
    zones = [word for zone in order for word in ("--zone", zone)]
    commands = [
        started("up", "v3-8", "--name", "n1", *ZONES, "--yes"),
        started("up", "v3-8", "--name", "n1", *zones, "--yes"),
    ]
    outputs = [command.communicate(timeout=120)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outputs
    assert len(nodes(simulator)) == 1, outputs


def test_after_a_kill_behind_the_create_the_same_command_elsewhere_uses_that_node(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    stuck = simulator.faults.add("stuck-operation", method="CreateNode")
    command = started("up", "v3-8", "--name", "n1", *ZONES, "--yes")
    poll(lambda: nodes(simulator) or None, awaiting="the create", timeout=60)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=60)
    simulator.faults.remove(stuck.id)
    result = tpuctl("up", "v3-8", "--name", "n1", "--zone", C, "--zone", B, "--zone", A, "--yes")
    assert result.code == 0, result.err
    assert f"n1 exists in {A}" in result.err
    assert nodes(simulator) == [A]
