"""The newest run of a node, whatever names others write into the node's folder."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import CREATED, TPU, write_run, write_status
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError
from tpuctl.flows.overview.node_runs import RunOnNode, Workload, runs_on, workload
from tpuctl.host.worker.records import RUNNING
from tpuctl.nodes import NodeId
from tpuctl.runs import Verdict, encode

NODE = NodePaths.of(TPU.id)
THIS = node(id=NodeId("cloud-tpu", TPU.project, TPU.zone, TPU.name, TPU.uid))


def test_names_without_a_run_do_not_hide_the_one_that_works(bucket: Bucket) -> None:
    assert runs_on(bucket, NODE) == runs_on(bucket, NODE, most=1) == []
    run = write_run(bucket)
    write_status(run.last_attempt(), 0, RUNNING)
    for name in ("r1/1", "ghost/1", "ghost/2", "..", "-rf/1"):
        bucket.upload(f"{NODE.runs}{name}.json", [b""], "application/json")
    for most in (1, None):
        assert [(item.run, item.works) for item in runs_on(bucket, NODE, most=most)] == [("r1", True)]


def test_a_run_works_until_it_has_ended_or_nobody_knows() -> None:
    verdict = Verdict("r1", "lost", 1, CREATED, "because")
    for state, expected in (("running", True), ("starting", True), ("finished", False), ("unknown", False)):
        run = RunOnNode("r1", 1, CREATED, state)
        assert run.works is expected
        assert Workload({TPU.uid: run}).on(THIS) == (run if expected else None)
        assert not replace(run, verdict=verdict).works
    assert Workload().on(THIS) is None


class TestMany:
    """By names in the node's folder, newest first; a name may be anybody's."""

    def write(self, *names: str) -> Bucket:
        memory = MemoryBucket()
        bucket = cast("Bucket", memory)
        for name in names:
            if name.startswith("ghost"):
                memory.put(f"{NODE.runs}{name}/1.json", b"{}")
            else:
                write_run(bucket, name)
        return bucket

    @pytest.mark.parametrize(("ghosts", "is_found"), [(0, True), (9, True), (10, False)])
    def test_ten_names_are_looked_at_for_each_run_that_is_wanted(self, ghosts: int, is_found: bool) -> None:
        bucket = self.write("r1", *(f"ghost-{number}" for number in range(ghosts)))
        names = [run.run for run in runs_on(bucket, NODE, most=1)]
        assert names == ["r1"] * is_found

    def test_all_are_found_the_newest_first(self) -> None:
        bucket = self.write("r1", "ghost-1", "r2", "r3")
        assert [run.run for run in runs_on(bucket, NODE)] == ["r3", "r2", "r1"]
        assert [run.run for run in runs_on(bucket, NODE, most=2)] == ["r3", "r2"]

    def test_the_newest_of_each_node_is_its_work(self) -> None:
        seen = workload(self.write("r1", "r2"), [THIS, replace(THIS, id=replace(THIS.id, uid=""))])
        assert {uid: run.run for uid, run in seen.newest.items()} == {TPU.uid: "r2"}
        assert seen.unknown == ""

    def test_a_bucket_that_does_not_answer_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bucket = self.write("r1")

        def fail(*_: object, **options: object) -> None:
            raise DeadlineError("gs://b does not answer.")

        monkeypatch.setattr(bucket, "objects", fail)
        assert workload(bucket, [THIS]) == Workload({}, "gs://b does not answer.")

    def test_a_record_that_cannot_be_read_is_said_and_unknown(self) -> None:
        bucket, warnings = self.write("r1"), list[str]()
        cast("MemoryBucket", bucket).put("runs/r1/verdict.json", b"{")
        (run,) = runs_on(bucket, NODE, warnings.append)
        assert (run.state, run.works) == ("unknown", False)
        assert [line.split()[0] for line in warnings] == ["runs/r1/verdict.json"]

    def test_a_verdict_is_that_of_its_attempt(self) -> None:
        bucket = self.write("r1")
        verdict = Verdict("r1", "lost", 2, CREATED, "because")
        cast("MemoryBucket", bucket).put("runs/r1/verdict.json", encode(verdict))
        assert [(run.state, run.verdict) for run in runs_on(bucket, NODE)] == [("starting", None)]

    def test_one_that_was_started_again_elsewhere_has_ended_here(self) -> None:
        bucket = self.write("r1")
        memory = cast("MemoryBucket", bucket)
        memory.put("runs/r1/verdict.json", encode(Verdict("r1", "succeeded", 2, CREATED, "because")))
        memory.put("runs/r1/attempts/1/verdict.json", encode(Verdict("r1", "preempted", 1, CREATED, "gone")))
        assert [(run.state, run.works) for run in runs_on(bucket, NODE)] == [("preempted", False)]
