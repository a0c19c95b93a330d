"""What the bucket has of a run that was submitted and has ended: all that makes its result again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.running_simulator import CommandResult
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs import results
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.provenance import HostEnvironment

JOB = """\
# /// script
# dependencies = ["google-cloud-storage"]
# [tool.tpuctl]
# env = { DATA_SEED = "5", RATE = "0.1", MODE = "fast" }
# ///
import os
from google.cloud import storage
place = os.environ["TPUCTL_CHECKPOINT_DIR"].removeprefix("gs://")
bucket, _, folder = place.partition("/")
storage.Client().bucket(bucket).blob(f"{folder}/weights.npy").upload_from_string(b"0123")
"""


def test_it_has_seeds_packages_and_results(
    tpuctl: Callable[..., CommandResult], bucket: Bucket, node: str
) -> None:
    Path("job.py").write_text(JOB)
    options = ("--name", "r1", "--env", "PYTHONHASHSEED=0", "--env", "RATE=0.2", "--attach")
    submitted = tpuctl("submit", "job.py", *options, "--", "--seed", "7", "--epochs", "3")
    assert submitted.code == 0, submitted.err
    run = StoredRun(bucket, "r1")
    assert run.record.seeds == {"--seed": "7", "PYTHONHASHSEED": "0", "DATA_SEED": "5"}
    assert run.record.of_header == ("DATA_SEED", "MODE")
    name = run.paths.environment(1, 0)
    environment = runs.decode(bucket.read(name), HostEnvironment, name)
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.installed["google-cloud-storage"]
    record = results.read(bucket, run.paths)
    assert record
    assert (record.outcome, [file.name for file in record.listed_files]) == (
        runs.SUCCEEDED, ["checkpoints/weights.npy"],
    )  # fmt: skip
    assert tpuctl("pull", "r1").code == 0
    assert Path("r1/results.json").read_bytes() == bucket.read(run.paths.results)
    assert Path("r1/attempts/1/workers/0/environment.json").is_file()
