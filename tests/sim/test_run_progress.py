"""What shows how far a run has come: logs, names of checkpoints, and the records of its attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tpuctl.sim.fault_executor import RunProgress
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.store import Store

BUCKET = "acme-data"
LOG = "runs/r1/attempts/1/workers/0/log/000001.log"
ORDERED = "runs/r1/attempts/1/log/20260131T120000-0-0.log"


class Watched:
    """A store with the objects of runs, and the faults that wait for their progress."""

    def __init__(self, folder: Path) -> None:
        self._store = Store(folder)
        self._store.ensure_bucket(BUCKET, "acme")
        self.calls = 0
        """How often progress was told."""
        self._progress = RunProgress(self._store, self._note)
        self._store.objects.watchers.append(self._progress.look_at)
        self.faults = FaultRegistry()

    def put(self, name: str, text: str) -> None:
        with self._store.blobs.create() as writer:
            writer.write([text.encode()])
            content = writer.finish()
            self._store.objects.create(BUCKET, name, content, {}, Preconditions())

    def attempt(self, number: int, uid: str, run: str = "r1") -> None:
        """Write the record of an attempt on a node."""
        self.put(f"runs/{run}/attempts/{number}/attempt.json", json.dumps({"tpu": {"uid": uid}}))

    def wait_for(self, **options: Any) -> None:
        """Have one more fault wait for a run."""
        self.faults.add("preemption", **options)
        self._progress.follow(self.faults.all())

    def reached(self, number: int = 0) -> set[str]:
        """Return the nodes of the runs for which a fault has waited."""
        return self._progress.nodes_that_reached(self.faults.all()[number])

    def forget(self) -> None:
        """Have no fault any more."""
        self._progress.follow([])

    def close(self) -> None:
        self._store.close()

    def _note(self) -> None:
        self.calls += 1


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with closing(Watched(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        ("step 119\n", False),
        ("step 120\n", True),
        ("Step: 121/1000, loss 0.5\n", True),
        ("STEP=120\n", True),
        ("global_step=120\n", True),
        ("steps 120\n", False),
        ("footstep 120\n", False),
        ("step  - : 120\n", False),
        ("epoch 120\n", False),
        ("loss 0.1 at step 5, step 120\n", True),
        ("step 12", False),
    ],
)
@pytest.mark.parametrize("name", [LOG, ORDERED])
def test_a_log_shows_the_step(watched: Watched, name: str, line: str, reached: bool) -> None:
    watched.wait_for(run="r*", step=120)
    watched.attempt(1, "77")
    watched.put(name, f"begin\n{line}")
    assert watched.reached() == ({"77"} if reached else set())


def test_a_line_may_be_in_two_parts_of_a_log(watched: Watched) -> None:
    watched.wait_for(run="r1", step=120)
    watched.attempt(1, "77")
    watched.put("runs/r1/attempts/1/workers/1/log/000001.log", "ep 120\n")
    watched.put(LOG, "step 1\nst")
    assert watched.reached() == set(), "another worker's"
    watched.put(LOG.replace("000001", "000002"), "ep 120\n")
    assert watched.reached() == {"77"}


@pytest.mark.parametrize(("length", "reached"), [(4096, True), (4097, False)])
def test_a_line_without_end_is_kept_up_to_a_length(watched: Watched, length: int, reached: bool) -> None:
    watched.wait_for(run="r1", log="begin.*end")
    watched.attempt(1, "77")
    watched.put(LOG, "begin" + "x" * (length - 5))
    watched.put(LOG.replace("000001", "000002"), "end\n")
    assert watched.reached() == ({"77"} if reached else set())


def test_a_line_of_a_log_may_be_waited_for(watched: Watched) -> None:
    watched.wait_for(run="r1", log="out of (memory|disk)")
    watched.attempt(1, "77")
    watched.put(LOG, "step 120\nout of time\n")
    assert watched.reached() == set()
    watched.put(LOG.replace("000001", "000002"), "oh: out of disk!\n")
    assert watched.reached() == {"77"}


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("runs/r1/checkpoints/ckpt-119.index", False),
        ("runs/r1/checkpoints/ckpt-120.index", True),
        ("runs/r1/checkpoints/300/state/0", True),
        ("runs/r1/checkpoints/checkpoint", False),
        ("runs/r2/checkpoints/ckpt-120.index", False),
        ("runs/r1/outputs/ckpt-120.index", False),
        ("elsewhere/runs/r1/checkpoints/ckpt-120.index", False),
    ],
)
def test_the_name_of_a_checkpoint_shows_the_step(watched: Watched, name: str, reached: bool) -> None:
    watched.wait_for(run="r1", step=120)
    watched.attempt(1, "77")
    watched.put(name, "")
    assert watched.reached() == ({"77"} if reached else set())


def test_a_checkpoint_is_no_line_of_a_log(watched: Watched) -> None:
    watched.wait_for(run="r1", log="ckpt")
    watched.attempt(1, "77")
    watched.put("runs/r1/checkpoints/ckpt-120.index", "ckpt")
    assert watched.reached() == set()


def test_without_a_step_a_run_counts_once_it_has_a_node(watched: Watched) -> None:
    watched.wait_for(run="r*")
    watched.put("runs/r0/attempts/1/attempt.json", "no record")
    watched.put("runs/r2/attempts/1/attempt.json", '{"tpu": null}')
    assert watched.reached() == set()
    watched.attempt(1, "77")
    watched.attempt(2, "78")
    watched.attempt(1, "79", run="r3")
    assert watched.reached() == {"78", "79"}
    watched.attempt(1, "77")
    assert watched.reached() == {"78", "79"}, "the latest attempt's"


def test_what_was_written_before_counts_too(watched: Watched) -> None:
    watched.attempt(1, "77")
    watched.put(LOG, "step 120\n")
    watched.put("runs/r1/log", "not a run's")
    watched.wait_for(run="r1", step=120)
    assert watched.reached() == {"77"}
    assert watched.calls == 0


def test_progress_is_told_when_there_is_some(watched: Watched) -> None:
    watched.put(LOG, "step 1\n")
    watched.wait_for(run="r1", step=120)
    watched.put("runs/r1/run.json", "{}")
    watched.put("datasets/step-120", "")
    watched.put(LOG, "step 2\n")
    assert watched.calls == 0
    watched.attempt(1, "77")
    watched.put(LOG, "step 120\n")
    watched.put(LOG, "step 130\n")
    assert watched.calls == 2


def test_each_fault_waits_for_its_own_runs(watched: Watched) -> None:
    watched.wait_for(run="r1", step=1)
    watched.wait_for(run="r2", step=1)
    watched.wait_for()
    watched.attempt(1, "77")
    watched.put(LOG, "step 1\n")
    assert [watched.reached(number) for number in range(3)] == [{"77"}, set(), set()]
    watched.forget()
    assert watched.reached() == set()
    watched.attempt(2, "78")
    assert watched.calls == 2
