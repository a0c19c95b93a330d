"""The names that commands have listed, of each kind where it is kept: a project, or one of two buckets."""

from __future__ import annotations

from pathlib import Path

from tpuctl.cli.completion.names import ListedNames
from tpuctl.config import load


def listed(**flags: str) -> ListedNames:
    return ListedNames(load({"target": "sim", **flags}))


def test_names_are_replaced_added_and_removed_by_kind(home: Path) -> None:
    listed().replace("runs", ["a", "b"])
    listed().add("runs", "c")
    listed().remove("runs", ["a"])
    listed().add("nodes", "n1")
    assert sorted(listed().names("runs")) == ["b", "c"]
    assert listed().names("nodes") == ["n1"]
    listed().replace("runs", ["d"])
    assert listed().names("runs") == ["d"]


def test_runs_are_those_of_the_bucket_and_datasets_those_of_their_own(home: Path) -> None:
    one = listed(bucket="lab-runs", data_bucket="lab-data")
    one.add("runs", "r1")
    one.add("datasets", "d1")
    other = listed(bucket="lab-runs", data_bucket="lab-others")
    assert other.names("runs") == ["r1"]
    assert other.names("datasets") == []
    assert listed(bucket="lab-2", data_bucket="lab-data").names("datasets") == ["d1"]
    assert listed(bucket="lab-2", data_bucket="lab-data").names("runs") == []


def test_nodes_are_those_of_the_project_whatever_the_bucket(home: Path) -> None:
    listed(project="my-lab-1", bucket="lab-runs").add("nodes", "n1")
    assert listed(project="my-lab-1", bucket="lab-2").names("nodes") == ["n1"]
    assert listed(project="another-1", bucket="lab-runs").names("nodes") == []


def test_the_simulators_names_are_not_those_of_google_cloud(home: Path) -> None:
    listed(project="my-lab-1", bucket="lab-runs").add("nodes", "n1")
    assert listed(target="gcp", project="my-lab-1", bucket="lab-runs").names("nodes") == []
