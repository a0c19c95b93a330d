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
from tpuctl.sim.world.capacity.reservations import Reservation

Tpuctl = Callable[..., CommandResult]
Row = tuple[tuple[str, ...], ...]

PARENT = "projects/sim-project/locations/europe-west4-a"
NETWORK = "projects/sim-project/global/networks/lab"
FACTORS: Sequence[Sequence[tuple[str, ...]]] = (
    # the values of each option, () for none
    (("v3-8",), ("v3-32",), ("v3", "--topology", "2x2")),
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
    ((), ("--scopes", "storage-rw,logging-write"), ("--scopes", "https://www.googleapis.com/auth/pubsub")),
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


class TestExistingNodes:
    def test_with_the_key_nothing_is_sent(
        self, node: str, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        before = simulator.events[-1].number
        assert printed(tpuctl("up", "v3-8", "--name", node, "--dry-run", "--json")) == []
        assert tpuctl("up", "v3-8", "--name", node).code == 0
        assert received(simulator, before) == []

    @pytest.mark.parametrize("detach", [(), ("--detach",)], ids=["wait", "detach"])
    def test_without_the_key_the_update_is_printed(
        self, detach: tuple[str, ...], node: str, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        forget_key(simulator, node)
        before = simulator.events[-1].number
        words = ("up", "v3-8", "--name", node, *detach)
        plan = printed(tpuctl(*words, "--dry-run", "--json"))
        assert tpuctl(*words).code == 0
        assert received(simulator, before) == plan
        assert [method for method, _ in plan] == ([] if detach else ["UpdateNode"])

    def test_down_of_all_kinds(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
        assert tpuctl("up", "v3-8", "--name", "q1", "--queued", "--yes").code == 0
        assert tpuctl("up", "v3-8", "--name", "s1", "--slices", "2", "--yes").code == 0
        for names in (("n1",), ("q1",), ("s1",)):
            before = simulator.events[-1].number
            plan = printed(tpuctl("down", *names, "--dry-run", "--json"))
            assert len(plan) == 1
            assert tpuctl("down", *names, "--yes").code == 0
            assert received(simulator, before) == plan

    def test_a_preempted_one_is_deleted_and_created_again(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        words = ("up", "v3-8", "--name", "n1", "--spot")
        assert tpuctl(*words, "--yes").code == 0
        simulator.call(simulator.world.preempt(f"{PARENT}/nodes/n1"))
        before = simulator.events[-1].number
        plan = printed(tpuctl(*words, "--dry-run", "--json"))
        assert [method for method, _ in plan] == ["DeleteNode", "CreateNode"]
        assert tpuctl(*words, "--yes").code == 0
        assert received(simulator, before) == plan


def forget_key(simulator: RunningSimulator, node: str) -> None:
    """Replace the keys of a node by one of somebody else."""
    with tpu_client(simulator.simulator.endpoints["tpu_grpc"]) as client:
        changed = tpu_v2.Node(name=f"{PARENT}/nodes/{node}", metadata={"ssh-keys": "bob:ssh-rsa AAAA bob"})
        mask = field_mask_pb2.FieldMask(paths=["metadata"])
        client.update_node(node=changed, update_mask=mask).result(polling=POLLING)
