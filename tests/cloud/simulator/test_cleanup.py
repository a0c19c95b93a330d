"""What is deleted of a simulator, what stays, and what is said where that fails."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tpuctl.cloud.simulator import process
from tpuctl.cloud.simulator.process import end_orphans, reset
from tpuctl.errors import HostError
from tpuctl.simulator_folder import SimulatorFolder


@pytest.fixture
def left_folder(tmp_path: Path) -> Path:
    made = tmp_path / "sim"
    (made / "objects/deep").mkdir(parents=True)
    (made / "objects/deep/x").touch()
    (made / "events.jsonl").touch()
    return made


def python_that(monkeypatch: pytest.MonkeyPatch, left_folder: Path, script: str) -> None:
    """Replace the Python that ends programs by a script: a real one has none to fail at."""
    program = left_folder.parent / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(process, "sys", SimpleNamespace(executable=str(program)))


def test_all_but_the_locks_is_deleted_and_no_link_followed(left_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (left_folder / "link").symlink_to(tmp_path / "mine")
    reset(left_folder)
    files = SimulatorFolder(left_folder)
    assert set(left_folder.iterdir()) == {files.starting_lock, files.lock}
    assert (tmp_path / "mine").is_dir()
    reset(left_folder)


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    reset(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_deleted_is_named(left_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(13, os.strerror(13), str(path))

    monkeypatch.setattr(process, "shutil", SimpleNamespace(rmtree=refuse))  # root may delete anything
    with pytest.raises(HostError) as refused:
        reset(left_folder)
    assert refused.value.message == f"{left_folder}/objects cannot be deleted: Permission denied."
    assert refused.value.hint == f"Delete it by hand: {left_folder}"


def test_without_hosts_there_is_no_program_to_end(left_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that(monkeypatch, left_folder, "echo 9")
    assert end_orphans(left_folder) == 0
    SimulatorFolder(left_folder).hosts.mkdir()
    assert end_orphans(left_folder) == 9


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo first >&2; echo it is busy. >&2; exit 1", "it is busy"), ("exit 3", "no message")],
)
def test_programs_that_cannot_be_ended_are_an_error(
    left_folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    python_that(monkeypatch, left_folder, script)
    SimulatorFolder(left_folder).hosts.mkdir()
    with pytest.raises(HostError) as refused:
        reset(left_folder)
    assert refused.value.message == (
        f"The programs that a killed simulator left running could not be ended: {reason}."
    )
    assert refused.value.hint == "The next start ends them, too: tpuctl sim start"
    assert (left_folder / "objects/deep/x").exists()
