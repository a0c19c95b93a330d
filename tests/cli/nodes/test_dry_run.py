"""`--dry-run` prints exactly the requests that the same command then sends, whatever its options."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2

from tests.cli.nodes.wire import printed, received
from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.live_host import POLLING, tpu_client
from tpuctl.sim.world.capacity.capacity import Reservation

Tpuctl = Callable[..., CommandResult]
Row = tuple[tuple[str, ...], ...]

PARENT = "projects/sim-project/locations/europe-west4-a"
NETWORK = "projects/sim-project/global/networks/lab"
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
FACTORS: Sequence[Sequence[tuple[str, ...]]] = (
    # the values of each option, () for none
    (("v3-8",), ("v3-32", "--framework", "jax"), ("v3", "--topology", "2x2")),
    ((), ("--spot",), ("--reserved",), ("--reservation", "r1")),
    ((), ("--queued",)),
    ((), ("--slices", "2")),
    ((), ("--valid-until", "2199-12-31T23:59:59+01:00")),
    ((), ("--detach",)),
    ((), ("--label", "team=vision", "--label", "größe=7,empty=")),
    ((), ("--tag", "tpu", "--tag", "lab,iap")),
    ((), ("--network", "lab"), ("--network", NETWORK, "--subnetwork", "lab")),
    ((), ("--internal-ips",)),
    ((), ("--service-account", "tpu@sim-project.iam.gserviceaccount.com")),
    ((), ("--scopes", "storage-rw,cloud-platform"), ("--scopes", CLOUD_PLATFORM, "--scopes", "pubsub")),
    ((), ("--ttl", "8h")),
    ((), ("--data-disk", "images:ro", "--data-disk", f"{PARENT.replace('locations', 'zones')}/disks/b:ro")),
    ((), ("--startup-script", "boot.sh")),
    ((), ("--metadata", "colour=red & blue=?", "--metadata", "text=@text.txt")),
    ((), ("--secure-boot",)),
    ((), ("--runtime", "tpu-ubuntu2204-base")),
)  # fmt: skip


def pairwise(factors: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[Row]:
    """Yield rows in which each value of each factor occurs with each value of every other."""
    indices = range(len(factors))
    pairs = {
        ((a, first), (b, second))
        for a, b in itertools.combinations(indices, 2)
        for first, second in itertools.product(range(len(factors[a])), range(len(factors[b])))
    }
    while pairs:
        row = dict(min(pairs))
        for factor in indices:
            if factor not in row:
                choices = range(len(factors[factor]))
                row[factor] = max(choices, key=lambda choice: len(_covered({**row, factor: choice}, pairs)))
        pairs -= _covered(row, pairs)
        yield tuple(factors[factor][row[factor]] for factor in indices)


def _covered(row: dict[int, int], pairs: set) -> set:
    return set(itertools.combinations(sorted(row.items()), 2)) & pairs


def words_of(row: Row) -> list[str]:
    return [word for words in row for word in words]


ROWS = [words_of(row) for row in pairwise(FACTORS)]


@pytest.fixture
def files(simulator: RunningSimulator) -> None:
    """The files that the options name, and a reservation."""
    Path("boot.sh").write_text("#!/bin/sh\necho ready\n")
    Path("text.txt").write_text("line 1\nline 2: ä\n")
    for kind in ("v3-8", "v3-32"):
        reservation = Reservation(f"{PARENT}/reservations/r1", kind, 1000)
        simulator.world.capacity.reservations.add(reservation)


@pytest.mark.parametrize("words", ROWS, ids=" ".join)
def test_up_sends_what_its_dry_run_prints(
    words: list[str], files: None, tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    plan = printed(tpuctl("up", *words, "--name", "n1", "--dry-run", "--json"))
    assert received(simulator) == []
    assert len(plan) == 1
    result = tpuctl("up", *words, "--name", "n1", "--yes")
    assert result.code == 0, result.err
    assert received(simulator) == plan


@pytest.fixture
def sends_as_printed(tpuctl: Tpuctl, simulator: RunningSimulator) -> Callable[..., list[str]]:
    """Run a command dry, then really; return the methods that it printed, which were those it sent."""

    def run(*words: str, yes: bool = True) -> list[str]:
        before = simulator.events[-1].number if simulator.events else 0
        plan = printed(tpuctl(*words, "--dry-run", "--json"))
        assert received(simulator, before) == [], "a dry run sends nothing"
        result = tpuctl(*words, *(["--yes"] if yes else []))
        assert result.code == 0, result.err
        assert received(simulator, before) == plan
        return [method for method, _ in plan]

    return run


Run = Callable[..., list[str]]


@pytest.mark.parametrize("idle", [("--idle", "30m"), ("--ttl", "8h", "--idle", "30m")], ids=" ".join)
def test_up_with_an_end(
    idle: tuple[str, ...], files: None, sends_as_printed: Run, simulator: RunningSimulator
) -> None:
    assert sends_as_printed("up", "v3-8", "--startup-script", "boot.sh", *idle) == ["CreateNode"]
    ((_, request),) = received(simulator)
    assert request["node"]["metadata"]["tpuctl-idle"] == "1800s"


class TestExistingNodes:
    def test_with_the_key_nothing_is_sent(self, node: str, sends_as_printed: Run) -> None:
        assert sends_as_printed("up", "v3-8", "--name", node) == []

    def test_without_the_key_the_update_is_printed(
        self, node: str, sends_as_printed: Run, simulator: RunningSimulator
    ) -> None:
        forget_key(simulator, node)
        assert sends_as_printed("up", "v3-8", "--name", node, "--detach") == [], "nobody logs in yet"
        assert sends_as_printed("up", "v3-8", "--name", node) == ["UpdateNode"]

    def test_a_preempted_one_is_deleted_and_created_again(
        self, tpuctl: Tpuctl, sends_as_printed: Run, simulator: RunningSimulator
    ) -> None:
        words = ("up", "v3-8", "--name", "n1", "--spot")
        assert tpuctl(*words, "--yes").code == 0
        simulator.call(simulator.world.preempt(f"{PARENT}/nodes/n1"))
        assert sends_as_printed(*words) == ["objects.create", "DeleteNode", "CreateNode"], (
            "how its runs ended is noted first"
        )

    def test_a_stopped_one_is_started_and_gets_the_key(
        self, node: str, sends_as_printed: Run, simulator: RunningSimulator
    ) -> None:
        assert sends_as_printed("stop", node) == ["StopNode"]
        assert sends_as_printed("stop", node) == []
        assert sends_as_printed("start", node) == ["StartNode"]
        assert sends_as_printed("start", node) == []
        assert sends_as_printed("stop", node) == ["StopNode"]
        forget_key(simulator, node)
        assert sends_as_printed("up", "v3-8", "--name", node) == ["StartNode", "UpdateNode"]

    def test_a_queued_one_waits_and_nothing_is_sent(self, tpuctl: Tpuctl, sends_as_printed: Run) -> None:
        assert tpuctl("up", "v3-8", "--name", "q1", "--queued", "--detach", "--yes").code == 0
        assert sends_as_printed("up", "v3-8", "--name", "q1", "--queued") == []


class TestOtherCommands:
    def test_down_of_all_kinds(self, tpuctl: Tpuctl, sends_as_printed: Run) -> None:
        for name, words in (("n1", ()), ("q1", ("--queued",)), ("s1", ("--slices", "2"))):
            assert tpuctl("up", "v3-8", "--name", name, *words, "--yes").code == 0
        assert sends_as_printed("down", "n1") == ["DeleteNode"]
        assert sends_as_printed("down", "q1") == ["DeleteQueuedResource"]
        assert sends_as_printed("down") == ["DeleteQueuedResource"]

    def test_extend(self, tpuctl: Tpuctl, sends_as_printed: Run) -> None:
        assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes").code == 0
        assert sends_as_printed("extend", "n1", "2h", yes=False) == ["UpdateNode"]

    def test_reap(self, tpuctl: Tpuctl, sends_as_printed: Run, simulator: RunningSimulator) -> None:
        assert sends_as_printed("reap") == []
        for name, words in (("n1", ()), ("n2", ()), ("q1", ("--queued",))):
            assert tpuctl("up", "v3-8", "--name", name, "--spot", *words, "--yes").code == 0
        simulator.call(simulator.world.preempt(f"{PARENT}/nodes/n1"))
        assert sends_as_printed("reap") == ["objects.create", "DeleteNode"]
        simulator.call(simulator.world.preempt(f"{PARENT}/nodes/q1"))
        assert sends_as_printed("reap") == ["objects.create", "DeleteQueuedResource"]

    def test_drill(self, node: str, sends_as_printed: Run) -> None:
        assert sends_as_printed("drill", node) == ["SimulateMaintenanceEvent"]


class TestSeveralZones:
    ZONES = ("--zone", "europe-west4-a", "--zone", "us-central1-a")

    def test_of_several_creates_the_next_is_sent_on_a_stockout(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        words = ("up", "v3-8", "--name", "n1", *self.ZONES)
        plan = printed(tpuctl(*words, "--dry-run", "--json"))
        assert [method for method, _ in plan] == ["CreateNode", "CreateNode"]
        assert tpuctl("sim", "fault", "add", "stockout", "--zone", "europe-west4-a").code == 0
        assert tpuctl(*words, "--yes").code == 0
        assert [request for request in received(simulator) if request[0] == "CreateNode"] == plan

    def test_a_race_sends_all_of_them_and_deletes_the_others(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        words = ("up", "v3-8", "--name", "n1", *self.ZONES, "--race")
        plan = printed(tpuctl(*words, "--dry-run", "--json"))
        assert tpuctl(*words, "--yes").code == 0
        sent = received(simulator)
        creates = [request for request in sent if request[0] == "CreateQueuedResource"]
        assert sorted(creates, key=str) == sorted(plan, key=str)
        assert {method for method, _ in sent} <= {
            "CreateQueuedResource",
            "DeleteQueuedResource",
            "UpdateNode",
        }


def forget_key(simulator: RunningSimulator, node: str) -> None:
    """Replace the keys of a node by one of somebody else."""
    with tpu_client(simulator.simulator.endpoints["tpu_grpc"]) as client:
        changed = tpu_v2.Node(name=f"{PARENT}/nodes/{node}", metadata={"ssh-keys": "bob:ssh-rsa AAAA bob"})
        mask = field_mask_pb2.FieldMask(paths=["metadata"])
        client.update_node(node=changed, update_mask=mask).result(polling=POLLING)
