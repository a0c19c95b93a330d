"""Paths of a run's objects in its copy: tpuctl's own files come first, and no two objects have one path."""

from __future__ import annotations

import pytest

from tpuctl.flows.runs.local_copy import assign_paths

FOLDER = "runs/r1/"
LOG = "attempts/1/workers/0/log/000001.log"


def assigned(*names: str, fold: bool = False) -> tuple[set[str], dict[str, str]]:
    """Return the names, below the run's folder, that get a path, and why the others get none."""
    full = [FOLDER + name for name in names]
    paths, refused = assign_paths(FOLDER, full, str.casefold if fold else str)
    assert all(FOLDER + "/".join(parts) == name for name, parts in paths.items())
    reasons = {name.removeprefix(FOLDER): reason for name, reason in refused.items()}
    return {name.removeprefix(FOLDER) for name in paths}, reasons


def test_a_path_is_the_name_below_the_runs_folder() -> None:
    assert assigned("run.json", LOG, "outputs/a b.h5") == ({"run.json", LOG, "outputs/a b.h5"}, {})


@pytest.mark.parametrize(
    ("name", "reason"), [("../x", "leads out of the folder"), (".git/config", "is a hidden file or folder")]
)
def test_a_name_that_is_not_safe_gets_none(name: str, reason: str) -> None:
    assert assigned("run.json", name) == ({"run.json"}, {name: reason})


def test_the_record_is_before_what_would_be_below_it() -> None:
    reason = "has the name of a file as that of its folder"
    assert assigned("run.json/x/y", "run.json") == ({"run.json"}, {"run.json/x/y": reason})


def test_a_file_yields_to_the_folder_of_a_deeper_one() -> None:
    assert assigned("outputs", "outputs/a") == ({"outputs/a"}, {"outputs": "has the name of a folder"})
    assert assigned("a/b", "a/b/c", "a") == (
        {"a/b/c"}, {"a/b": "has the name of a folder", "a": "has the name of a folder"},
    )  # fmt: skip


def test_a_joined_log_keeps_its_place() -> None:
    log = "logs/attempt-1-worker-0.log"
    assert assigned(log, LOG) == ({LOG}, {log: "has the name of another file on this disk"})
    assert assigned(log) == ({log}, {}), "without pieces nothing is joined"


def test_of_names_that_the_disk_takes_for_one_the_first_gets_the_path() -> None:
    both = ("outputs/A", "outputs/a")
    assert assigned(*both) == (set(both), {})
    assert assigned(*both, fold=True) == (
        {"outputs/A"}, {"outputs/a": "has the name of another file on this disk"},
    )  # fmt: skip
