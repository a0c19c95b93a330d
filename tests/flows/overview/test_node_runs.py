"""The newest run of a node, whatever names others write into the node's folder."""

from __future__ import annotations

from tests.flows.runs.records import write_run, write_status
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.overview.node_runs import runs_on
from tpuctl.worker.records import RUNNING

NODE = NodePaths("p", "z", "n1", "1")


def test_names_without_a_run_do_not_hide_the_one_that_works(bucket: Bucket) -> None:
    assert runs_on(bucket, NODE) == runs_on(bucket, NODE, most=1) == []
    run = write_run(bucket)
    write_status(run.last_attempt(), 0, RUNNING)
    for name in ("r1/1", "ghost/1", "ghost/2", "..", "-rf/1"):
        bucket.upload(f"{NODE.runs}{name}.json", [b""], "application/json")
    for most in (1, None):
        assert [(item.run, item.works) for item in runs_on(bucket, NODE, most=most)] == [("r1", True)]
