"""The fields of data commands in JSON, on which programs of users rely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
DATASET = "name version uri records bytes shards file_format splits classes skipped digest"
CSV = "x,label\n1,a\n2,b\n3,a\n4,b\n"


@pytest.fixture(autouse=True)
def uploaded(tpuctl: Tpuctl, simulator: RunningSimulator) -> dict[str, object]:
    """What the upload of four rows says."""
    Path("rows.csv").write_text(CSV)
    result = tpuctl("data", "upload", "rows", "rows.csv", "--json")
    assert result.code == 0, result.err
    shown: dict[str, object] = result.json
    return shown


def test_a_plan_has_every_field(tpuctl: Tpuctl) -> None:
    plan = tpuctl("data", "plan", "rows", "rows.csv", "--json").json
    assert " ".join(plan) == "schema name version kind records bytes exact classes features splits left_out"
    assert " ".join(plan["splits"]["train"]) == "records bytes shards why"
    assert (plan["kind"], plan["records"], plan["exact"], plan["left_out"]) == ("csv", 4, False, [])
    assert plan["features"] == {
        "x": {"kind": "tensor", "dtype": "int64", "shape": []},
        "label": {"kind": "label", "classes": ["a", "b"]},
    }


def test_a_dataset_has_the_same_fields_in_every_command(tpuctl: Tpuctl, uploaded: dict[str, object]) -> None:
    assert " ".join(uploaded) == f"schema {DATASET} already_there shards_kept"
    assert (uploaded["already_there"], uploaded["shards_kept"]) == (False, 0)
    again = tpuctl("data", "upload", "rows", "rows.csv", "--json").json
    assert (again["already_there"], again["digest"]) == (True, uploaded["digest"])
    (listed,) = tpuctl("data", "ls", "--json").json["datasets"]
    assert " ".join(listed) == DATASET
    verified = tpuctl("data", "verify", "rows", "--json").json
    assert " ".join(verified) == f"schema {DATASET} deep ok"
    assert (verified["deep"], verified["ok"]) == (False, True)
    assert tpuctl("data", "verify", "rows", "--deep", "--json").json["deep"] is True
    sample = tpuctl("data", "sample", "rows", "--count", "2", "--as", "few", "--json").json
    assert " ".join(sample) == f"schema {DATASET} already_there shards_kept"
    assert (sample["name"], sample["records"]) == ("few", 2)


def test_a_description_holds_the_manifest(tpuctl: Tpuctl, uploaded: dict[str, object]) -> None:
    described = tpuctl("data", "describe", "rows", "--json").json
    assert " ".join(described) == "schema uri digest manifest"
    assert (described["uri"], described["digest"]) == (uploaded["uri"], uploaded["digest"])
    manifest = described["manifest"]
    assert " ".join(manifest) == "schema name version features classes splits source files tpuctl"
    assert {" ".join(shard) for shard in manifest["splits"]["train"]["shards"]} == {
        "file records bytes crc32c"
    }
    assert set(manifest["files"]) == {"label.labels.txt", "features.json", "dataset_info.json"}


def test_a_difference_has_every_field(tpuctl: Tpuctl) -> None:
    difference = tpuctl("data", "diff", "rows", "rows", "--json").json["diff"]
    none = {"count": 0, "examples": []}
    assert difference == {
        "a": "rows/1.0.0",
        "b": "rows/1.0.0",
        "differs": False,
        "facts": [],
        "records": {"same": 4, "only_a": none, "only_b": none, "moved": none, "changed": none},
    }


def test_examples_and_removals(tpuctl: Tpuctl, uploaded: dict[str, object]) -> None:
    examples = tpuctl("data", "head", "rows", "--json").json["examples"]
    assert sorted(example["x"] for example in examples) == [1, 2, 3, 4]
    assert {example["label"] for example in examples} == {0, 1}
    removed = tpuctl("data", "rm", "rows", "--yes", "--json").json
    assert " ".join(removed) == "schema removed objects uri"
    assert (removed["removed"], removed["uri"]) == ("rows/1.0.0", uploaded["uri"])


def test_public_datasets_have_their_files(tpuctl: Tpuctl) -> None:
    listed = tpuctl("data", "fetch", "--json").json["datasets"]
    assert {" ".join(dataset) for dataset in listed} == {"name what files licence source next"}
    assert {" ".join(file) for dataset in listed for file in dataset["files"]} == {"name url bytes sha256"}
