"""What `data sample` says: one record or several, as text and as JSON, and the command that comes next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket

Tpuctl = Callable[..., CommandResult]
SAMPLE = ("data", "sample", "rows")


@pytest.fixture(autouse=True)
def _rows(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    """More rows than a sample has unless it says how many."""
    Path("rows.csv").write_text("x\n" + "".join(f"{number}\n" for number in range(120)))
    assert tpuctl("data", "upload", "rows", "rows.csv").code == 0


def test_a_sample_has_a_hundred_records_unless_it_says_how_many(tpuctl: Tpuctl) -> None:
    assert tpuctl(*SAMPLE, "--to", "look").out == "100 records are in look/train.jsonl.\n"
    assert len(Path("look/train.jsonl").read_text().splitlines()) == 100
    assert tpuctl(*SAMPLE, "-n", "1", "--to", "single").out == "1 record is in single/train.jsonl.\n"
    planned = tpuctl(*SAMPLE, "-n", "1", "--to", "other", "--dry-run")
    assert planned.out == "1 record would be written to other/train.jsonl.\n"
    assert not Path("other").exists()


def test_the_json_counts_files_that_were_written(tpuctl: Tpuctl) -> None:
    fields = {"folder": "look", "records": 3, "paths": ["look/train.jsonl"]}
    planned = tpuctl(*SAMPLE, "-n", "3", "--to", "look", "--dry-run", "--json").json
    written = tpuctl(*SAMPLE, "-n", "3", "--to", "look", "--json").json
    assert (planned.pop("schema"), written.pop("schema")) == (1, 1)
    assert planned == {**fields, "files": 0}
    assert written == {**fields, "files": 1}


def test_another_seed_draws_another_sample(tpuctl: Tpuctl) -> None:
    for folder, options in {"a": (), "b": ("--seed", "0"), "c": ("--seed", "1")}.items():
        assert tpuctl(*SAMPLE, "-n", "9", "--to", folder, *options).code == 0
    drawn = [Path(folder, "train.jsonl").read_text() for folder in "abc"]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("options", [(), ("--to", "look", "--as", "few")])
def test_a_sample_has_one_place(tpuctl: Tpuctl, options: tuple[str, ...]) -> None:
    result = tpuctl(*SAMPLE, *options)
    assert result.code == 2
    assert "A sample goes to a folder or becomes a dataset." in result.err
    assert "tpuctl data sample rows --to ./sample" in result.err
    assert not Path("look").exists()


def test_a_sample_becomes_the_first_version_of_a_dataset(tpuctl: Tpuctl, bucket: Bucket) -> None:
    planned = tpuctl(*SAMPLE, "-n", "9", "--as", "few", "--dry-run")
    assert "datasets/few/1.0.0/" in planned.out
    assert "Next:" not in planned.err
    assert not list(bucket.objects("datasets/few/"))
    result = tpuctl(*SAMPLE, "-n", "9", "--as", "few")
    assert result.err.splitlines()[-1] == "Next: tpuctl data stats few/1.0.0"
    assert "train: 9 records" in result.err.splitlines()
    shown = tpuctl(*SAMPLE, "-n", "9", "--as", "few/2.0.0", "--json").json
    assert (shown["name"], shown["version"], shown["records"]) == ("few", "2.0.0", 9)
    assert (shown["already_there"], shown["shards_kept"]) == (False, 0)
    again = tpuctl(*SAMPLE, "-n", "9", "--as", "few/2.0.0", "--json").json
    assert (again["already_there"], again["shards_kept"]) == (True, 0)
