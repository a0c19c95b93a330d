"""A dataset in ArrayRecord is uploaded, checked and read as one in TFRecord is, and read at any place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.data.source_trees import produce
from tests.flows.datasets.pets import PETS, break_off, names, remove_pets, send
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import SCHEMA, Manifest, decode_manifest
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.errors import ConflictError, StateError, TpuctlError, UsageError
from tpuctl.flows.datasets.analysis import Origin, diff, split_records, stats
from tpuctl.flows.datasets.head import head
from tpuctl.flows.datasets.pull import pull, verify

pytestmark = pytest.mark.skipif(find_spec("array_record") is None, reason="array_record is not installed")

READ = """
import json, sys, grain
source = grain.sources.ArrayRecordDataSource(json.loads(sys.argv[1]))
dataset = grain.MapDataset.source(source).seed(0).shuffle()
print(json.dumps([len(source), source[5].hex(), [dataset[place].hex() for place in range(len(dataset))]]))
"""
BY_TFDS = """
import json, sys
sys.modules["google.cloud.storage_control_v2"] = None  # with it, gcsfs asks over gRPC for a minute
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory(sys.argv[1])
print(json.dumps(sorted(
    [int(example["label"]), list(example["image"].shape), int(example["image"].sum())]
    for example in builder.as_data_source(split="train")
)))
"""


def plan_pets(root: Path, *, shards: int = 2) -> DatasetPlan:
    return plan(root, name=PETS.name, shards=shards, file_format="arrayrecord")


def quiet(done: int, total: int) -> None:
    """Report nothing."""


@pytest.fixture
def manifest(bucket: Bucket, pictures: Path) -> Manifest:
    return send(bucket, plan_pets(pictures)).manifest


def environment(simulator: RunningSimulator) -> dict[str, str]:
    found: dict[str, str] = json.loads((simulator.folder / "endpoints.json").read_text())["environment"]
    return found


@pytest.mark.slow
def test_grain_reads_the_bucket_at_any_place_and_shuffled(
    bucket: Bucket, simulator: RunningSimulator, manifest: Manifest
) -> None:
    files = [f"gs://{bucket.name}/{PETS.folder}{entry.file}" for entry in manifest.shards]
    result = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(files)],
        env=environment(simulator), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    count, sixth, shuffled = json.loads(result.stdout)
    records = [record.hex() for record in split_records(bucket, manifest, "train")]
    assert (count, sixth) == (8, records[5])
    assert shuffled != records
    assert sorted(shuffled) == sorted(records)


@pytest.mark.slow
def test_tfds_reads_the_bucket_as_a_data_source(
    bucket: Bucket, simulator: RunningSimulator, manifest: Manifest, pictures: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", BY_TFDS, manifest.ref.uri(bucket.name)],
        env=environment(simulator), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    read = json.loads(result.stdout)
    assert [example[:2] for example in read] == [[label, [6, 8, 3]] for label in (0, 0, 0, 0, 1, 1, 1, 1)]


def test_what_is_uploaded_is_what_the_plan_makes_and_the_next_upload_finds_it(
    bucket: Bucket, manifest: Manifest, pictures: Path
) -> None:
    files = produce(plan_pets(pictures))
    assert {name: bucket.read(PETS.folder + name) for name in names(bucket)} == files
    assert manifest.shards[0].file == "pets-train.array_record-00000-of-00002"
    assert send(bucket, plan_pets(pictures)).already_there
    with pytest.raises(ConflictError, match="exists with other content"):
        send(bucket, plan(pictures, name="pets", shards=2))


def test_an_earlier_tpuctl_refuses_it_by_its_schema_and_reads_what_is_tfrecord(
    manifest: Manifest, pictures: Path
) -> None:
    assert manifest.schema == SCHEMA
    written = produce(plan(pictures, name="pets"))["manifest.json"]
    assert decode_manifest(written).schema < SCHEMA
    assert b"file_format" not in written


def test_an_upload_that_broke_off_keeps_its_shards(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object="*/commit.json", count=1
    )
    with pytest.raises(TpuctlError):
        send(bucket, plan_pets(pictures))
    assert [name.partition(".")[2] for name in names(bucket)].count("array_record") == 2
    assert send(bucket, plan_pets(pictures)).kept == 2
    remove_pets(bucket)
    break_off(bucket, simulator, pictures)  # TFRecord: of another format nothing is kept
    assert send(bucket, plan_pets(pictures)).kept == 0


def test_its_records_are_those_of_tfrecord(bucket: Bucket, manifest: Manifest, pictures: Path) -> None:
    tfrecord = send(bucket, plan(pictures, name="pets", version="2.0.0", shards=2)).manifest
    assert diff(bucket, tfrecord, manifest, quiet).is_empty
    mine, other = (stats(bucket, each, quiet) for each in (manifest, tfrecord))
    assert mine.splits[0].classes == other.splits[0].classes == {"label": {"cat": 4, "dog": 4}}
    assert mine.splits[0].pictures == other.splits[0].pictures
    assert head(bucket, manifest, split="", count=5) == head(bucket, tfrecord, split="", count=5)
    sizes = [json.loads(bucket.read(f"{each.ref.folder}dataset_info.json")) for each in (manifest, tfrecord)]
    assert sizes[0]["splits"][0]["numBytes"] == sizes[1]["splits"][0]["numBytes"]


def test_a_copy_of_it_is_whole(bucket: Bucket, manifest: Manifest, pictures: Path, tmp_path: Path) -> None:
    pull(bucket, manifest, tmp_path / "copy", lambda text: None, quiet)
    copied = {file.name: file.read_bytes() for file in (tmp_path / "copy").iterdir()}
    assert copied == produce(plan_pets(pictures))


def test_damage_is_found_and_named(bucket: Bucket, manifest: Manifest) -> None:
    verify(bucket, manifest, deep=True, report=quiet)
    name = PETS.folder + manifest.shards[1].file
    data, stored = bucket.read(name), bucket.stat(name)
    assert stored
    bucket.remove(stored)
    bucket.upload(name, [data[:100] + b"\xff" + data[101:]], "application/octet-stream")
    with pytest.raises(StateError, match=r"array_record-00001-of-00002 has crc32c"):
        verify(bucket, manifest, deep=False, report=quiet)
    with pytest.raises(UsageError, match=r"It is not an ArrayRecord, or a damaged one: Corrupted"):
        stats(bucket, manifest, quiet)


def test_a_sample_of_it_is_refused(bucket: Bucket, manifest: Manifest) -> None:
    origin = Origin(bucket, manifest, lambda name: bucket)
    with pytest.raises(UsageError, match=r"pets/1\.0\.0 is in ArrayRecord"), origin.opened():
        pass


def test_the_command_uploads_describes_and_checks_it(
    bucket: Bucket, tpuctl: Callable[..., CommandResult], pictures: Path
) -> None:
    wrong = tpuctl("data", "upload", "pets", str(pictures), "--format", "arrayrecord")
    assert "--file-format arrayrecord" in wrong.err
    assert tpuctl("data", "upload", "pets", str(pictures), "--file-format", "arrayrecord").code == 0
    described = json.loads(tpuctl("data", "describe", "pets", "--json").out)
    assert described["manifest"]["file_format"] == "arrayrecord"
    assert "arrayrecord" in tpuctl("data", "describe", "pets").out
    assert tpuctl("data", "verify", "pets", "--deep").code == 0
    refused = tpuctl("data", "split", "pets", "--splits", "train=0.5,test=0.5")
    assert (refused.code, "is in ArrayRecord" in refused.err) == (2, True)
