"""What `tpuctl diff` prints, of a run and its repetition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket

Tpuctl = Callable[..., CommandResult]
JOB = """\
# /// script
# dependencies = ["google-cloud-storage"]
# ///
import os, sys
from google.cloud import storage
place = os.environ["TPUCTL_CHECKPOINT_DIR"].removeprefix("gs://")
bucket, _, folder = place.partition("/")
weights = " ".join(sys.argv[1:]).encode()
storage.Client().bucket(bucket).blob(f"{folder}/weights.npy").upload_from_string(weights)
"""


@pytest.fixture
def pair(tpuctl: Tpuctl, node: str) -> None:
    """A run, one like it, and one with another seed."""
    Path("job.py").write_text(JOB)
    ran = tpuctl("submit", "job.py", "--name", "r1", "--attach", "--", "--seed", "7")
    assert ran.code == 0, ran.err
    for name, changes in (("r2", ()), ("r3", ("--", "--seed", "8"))):
        again = tpuctl("resubmit", "r1", "--name", name, *changes)
        assert again.code == 0, again.err
        assert tpuctl("wait", name).code == 0


@pytest.mark.usefixtures("pair")
def test_a_run_and_its_repetition(tpuctl: Tpuctl, bucket: Bucket) -> None:
    before = bucket.objects("")
    same = tpuctl("diff", "r1", "r2")
    assert same.code == 0, same.err
    assert same.out == "r1 and r2 do not differ in anything that is recorded.\n"
    content = tpuctl("diff", "r1", "r2", "--json").json
    assert (content["runs"], content["equal"], content["differences"], content["unknown"]) == (
        ["r1", "r2"], True, [], [],
    )  # fmt: skip

    other = tpuctl("diff", "r1", "r3")
    assert other.code == 0
    lines = [line.split() for line in other.out.splitlines()]
    assert lines[0] == ["PART", "NAME", "r1", "r3"]
    assert ["arguments", "--seed", "7", "8"] in lines
    assert ["seeds", "--seed", "7", "8"] in lines
    assert lines[3][:2] == ["results", "checkpoints/weights.npy"]
    assert len(lines) == 4
    assert "The same: code, packages, data, machine, job, variables." in other.err
    content = tpuctl("diff", "r1", "r3", "--json").json
    assert content["equal"] is False
    facts = {fact["name"]: fact["value"] for fact in tpuctl("describe", "r3", "--json").json["run"]["facts"]}
    assert (facts["repeats"], facts["seeds"]) == ("r1", "--seed 8")
    assert content["differences"][0] == {"part": "arguments", "name": "--seed", "first": "7", "second": "8"}
    assert bucket.objects("") == before


def test_a_run_that_does_not_exist_is_told(tpuctl: Tpuctl, bucket: Bucket) -> None:
    refused = tpuctl("diff", "r1", "r2")
    assert refused.code == 4
    assert "There is no run 'r1'." in refused.err
