"""Which objects of a run the buckets delete by age: what the README promises, by the recorded rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.terraform.applied_rights import RECORDED
from tests.terraform.workbench import SOURCE
from tpuctl.bucket_layout import RunPaths, bundle

RUN = "runs/r1"


def rules(key: str) -> Iterator[dict[str, Any]]:
    """Yield the conditions under which objects of the bucket of `data` or of `runs` are deleted."""
    state = json.loads((RECORDED / "minimal-rights.json").read_text())["values"]["root_module"]
    for resource in state["child_modules"][0]["resources"]:
        if resource["address"] == f'module.base.google_storage_bucket.this["{key}"]':
            for rule in resource["values"]["lifecycle_rule"]:
                if rule["action"][0]["type"] == "Delete":
                    yield rule["condition"][0]


def is_deleted(name: str, key: str = "runs") -> bool:
    """Whether an object is deleted at some age: its name begins and ends as a rule says."""
    return any(
        name.startswith(tuple(rule["matches_prefix"])) and name.endswith(tuple(rule["matches_suffix"]))
        for rule in rules(key)
    )


@pytest.mark.parametrize(
    ("name", "deleted"),
    [
        (RunPaths("r1").log(1, 0, 1), True),
        (bundle("0" * 64), True),
        (f"{RUN}/run.json", False),
        (f"{RUN}/verdict.json", False),
        (f"{RUN}/attempts/1/attempt.json", False),
        (f"{RUN}/attempts/1/workers/0/status.json", False),
        (f"{RUN}/checkpoints/ckpt-1.index", False),
        (f"{RUN}/tensorboard/events.out.tfevents.1", False),
        (f"{RUN}/outputs/model.keras", False),
        (f"{RUN}/outputs/mine.log", True),
        ("datasets/pets/1.0.0/manifest.json", False),
        ("elsewhere/mine.log", False),
    ],
)
def test_only_logs_and_bundles_go(name: str, deleted: bool) -> None:
    assert is_deleted(name) is deleted


def test_no_dataset_goes_and_the_readme_says_what_does() -> None:
    assert list(rules("data")) == []
    text = " ".join((SOURCE / "README.md").read_text().split())
    assert "Run records, checkpoints and datasets are never deleted by age" in text
    assert "of a job's outputs only those whose names end in `.log` are" in text
