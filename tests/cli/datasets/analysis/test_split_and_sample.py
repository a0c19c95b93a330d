"""`data split` and `data sample` make datasets and files of the records of a dataset in the bucket."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import Manifest, decode_manifest
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets.analysis import split_records

Command = Callable[..., CommandResult]


@pytest.fixture
def pets(simulator: RunningSimulator, tpuctl: Command) -> str:
    """20 cats and 10 dogs in training, 8 and 4 in test; one cat is in both."""
    rng = np.random.default_rng(0)
    for split, cats in (("train", 20), ("test", 8)):
        for kind, count in (("cat", cats), ("dog", cats // 2)):
            folder = Path("pets") / split / kind
            folder.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8)).save(folder / f"{number}.png")
    Path("pets/test/cat/0.png").write_bytes(Path("pets/train/cat/0.png").read_bytes())
    assert tpuctl("data", "upload", "pets", "pets").code == 0
    return "pets"


def manifest_of(bucket: Bucket, ref: str) -> Manifest:
    parsed = DatasetRef.parse(ref)
    return decode_manifest(bucket.read(f"{parsed.folder}manifest.json"), parsed)


def records_of(bucket: Bucket, ref: str) -> dict[str, Counter[bytes]]:
    manifest = manifest_of(bucket, ref)
    return {split: Counter(split_records(bucket, manifest, split)) for split in manifest.splits}


def classes(tpuctl: Command, ref: str) -> dict[str, dict[str, int]]:
    content = json.loads(tpuctl("data", "stats", ref, "--json").out)["stats"]
    return {name: split["classes"]["label"] for name, split in content["splits"].items()}


def test_a_split_has_the_same_records_in_other_shares(tpuctl: Command, bucket: Bucket, pets: str) -> None:
    result = tpuctl("data", "split", pets, "--splits", "train=0.5,validation=0.5")
    assert result.code == 0
    assert "Next: tpuctl data diff pets/1.0.0 pets/1.1.0" in result.err
    before, after = records_of(bucket, "pets/1.0.0"), records_of(bucket, "pets/1.1.0")
    assert sum(before.values(), Counter()) == sum(after.values(), Counter())
    assert classes(tpuctl, "pets/1.1.0") == {
        "train": {"cat": 14, "dog": 7}, "validation": {"cat": 14, "dog": 7}
    }  # fmt: skip
    assert manifest_of(bucket, "pets/1.1.0").features == manifest_of(bucket, "pets/1.0.0").features
    again = tpuctl("data", "split", pets + "/1.0.0", "--splits", "train=0.5,validation=0.5", "--as", "1.1.0")
    assert "pets/1.1.0 (was there already)" in again.out


def test_duplicates_stay_in_one_split(tpuctl: Command, bucket: Bucket, pets: str) -> None:
    for seed in range(3):
        options = ("--splits", "train=1/2,test=1/2", "--as", f"2.0.{seed}", "--seed", str(seed))
        assert tpuctl("data", "split", f"{pets}/1.0.0", *options, "--group-duplicates").code == 0
        records = records_of(bucket, f"pets/2.0.{seed}")
        assert not records["train"].keys() & records["test"].keys()
        assert sum(map(Counter.total, records.values())) == 42


def test_a_sample_keeps_the_shares_of_splits_and_classes(tpuctl: Command, bucket: Bucket, pets: str) -> None:
    assert tpuctl("data", "sample", pets, "-n", "21", "--as", "few").code == 0
    assert classes(tpuctl, "few") == {"train": {"cat": 10, "dog": 5}, "test": {"cat": 4, "dog": 2}}
    before, sample = records_of(bucket, "pets/1.0.0"), records_of(bucket, "few/1.0.0")
    assert all(sample[split] <= before[split] for split in sample)
    assert tpuctl("data", "sample", pets, "-n", "999", "--as", "whole").code == 0
    assert records_of(bucket, "whole/1.0.0") == before


def test_a_sample_of_pictures_is_files_in_class_folders(tpuctl: Command, pets: str) -> None:
    planned = tpuctl("data", "sample", pets, "-n", "6", "--to", "look", "--dry-run")
    assert planned.out == "6 records would be written to look/train, look/test.\n"
    assert not Path("look").exists()
    assert tpuctl("data", "sample", pets, "-n", "6", "--to", "look").code == 0
    files = sorted(Path("look").rglob("*.png"))
    uploaded = {file.read_bytes() for file in Path("pets").rglob("*.png")}
    assert len(files) == 6
    assert all(file.read_bytes() in uploaded for file in files)
    assert Counter(file.parent.name for file in files) == {"cat": 4, "dog": 2}
    assert tpuctl("data", "sample", pets, "-n", "6", "--to", "look").code == 0
    assert sorted(Path("look").rglob("*.png")) == files


@pytest.mark.usefixtures("simulator")
def test_a_sample_of_rows_is_json_lines(tpuctl: Command) -> None:
    Path("rows.csv").write_text("n,text\n" + "".join(f"{n},row {n}\n" for n in range(20)))
    assert tpuctl("data", "upload", "rows", "rows.csv").code == 0
    result = json.loads(tpuctl("data", "sample", "rows", "-n", "5", "--to", "look", "--json").out)
    rows = [json.loads(line) for line in Path("look/train.jsonl").read_text().splitlines()]
    assert (result["records"], len(rows)) == (5, 5)
    assert all(row["text"] == f"row {row['n']}" for row in rows)


def test_a_dry_run_writes_nothing(tpuctl: Command, bucket: Bucket, pets: str) -> None:
    before = [item.name for item in bucket.objects("datasets/")]
    result = tpuctl("data", "split", pets, "--splits", "train=0.5,test=0.5", "--dry-run")
    assert "datasets/pets/1.1.0/staging/" in result.out
    assert [item.name for item in bucket.objects("datasets/")] == before


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("split", "pets", "--splits", "train=0.5"), "the fractions add up to 0.5, not to 1"),
        (("split", "pets", "--splits", "a=0.5,b=0.5", "--as", "1.0.0"), "pets/1.0.0 is the dataset itself"),
        (("split", "pets", "--splits", "a=0.5,b=0.5", "--stratify", "kind"), "has no label 'kind'"),
        (("split", "pets", "--splits", "a=0.999,b=0.001"), "The split 'b' would be empty"),
        (("sample", "pets", "--to", "pets", "--dry-run"), "pets has files that are not of a sample"),
        (("sample", "pets"), "A sample goes to a folder or becomes a dataset"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    tpuctl: Command, pets: str, arguments: tuple[str, ...], problem: str
) -> None:
    result = tpuctl("data", *arguments)
    assert result.code == 2
    assert problem in result.err


def on_a_terminal(*command: str) -> str:
    """Run a command on a terminal, and return all that it writes there."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "tpuctl", *command]
    process = subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 1 << 16):
            written += data
    except OSError:  # Linux's way to say that nobody writes any more
        pass
    os.close(ours)
    assert process.wait() == 0, written
    return written.decode()


@pytest.mark.parametrize(
    "command",
    [
        ("split", "pets/1.0.0", "--splits", "train=1/2,test=1/2"),
        ("sample", "pets/1.0.0", "-n", "6", "--as", "few"),
    ],
)
def test_a_terminal_shows_no_escape_sequence_as_text(pets: str, command: tuple[str, ...]) -> None:
    """A bar within another bar would show its sequences so."""
    shown = on_a_terminal("data", *command)
    assert "records read" in shown
    assert "\\x1b" not in shown
    assert "\\r" not in shown
