"""The program that a host keeps as bytecode after its first run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tpuctl.flows.runs.submission.launch import KEPT, worker_program
from tpuctl.host.worker import bytecode, control, main

USED = [control, bytecode, main]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An attempt's folder in a home folder, whose program runs."""
    folder = tmp_path / ".tpuctl/runs/r1/1"
    folder.mkdir(parents=True)
    (folder / "worker.zip").write_bytes(worker_program())
    monkeypatch.setattr(sys, "argv", [str(folder / "worker.zip")])
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where START looks for it."""
    return tmp_path / KEPT / f"{hashlib.sha256(worker_program()).hexdigest()}.zip"


def ask(program: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), "ask", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rewrite(program: Path, suffix: str, data: bytes) -> None:
    """Put these bytes in the place of every module of this suffix."""
    with zipfile.ZipFile(program) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(program, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, data if name.endswith(suffix) else content)


def test_a_kept_program_runs_without_its_source(folder: Path, kept: Path) -> None:
    bytecode.keep(str(folder))
    with zipfile.ZipFile(kept) as archive:
        names = set(archive.namelist())
    assert {f"{module.__name__.replace('.', '/')}.pyc" for module in USED} <= names
    rewrite(kept, "/main.py", b"raise SystemExit(7)")
    assert ask(kept, folder).stdout == '{"state": "absent"}\n'


def test_another_python_takes_the_source(folder: Path, kept: Path) -> None:
    bytecode.keep(str(folder))
    rewrite(kept, ".pyc", b"\0" * 20)
    assert ask(kept, folder).stdout == '{"state": "absent"}\n'


def test_it_is_written_once_and_leaves_nothing_else(folder: Path, kept: Path) -> None:
    bytecode.keep(str(folder))
    written = kept.stat()
    bytecode.keep(str(folder))
    assert kept.stat().st_mtime_ns == written.st_mtime_ns
    assert list(kept.parent.iterdir()) == [kept]


def test_one_that_another_run_has_kept_meanwhile_stays(
    folder: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have begun to read it: Python remembers where in the file each module is."""
    compile_program = bytecode._compile

    def compile_as_second(program: str, part: str, target: str) -> None:
        kept.write_bytes(b"first")
        compile_program(program, part, target)

    monkeypatch.setattr(bytecode, "_compile", compile_as_second)
    bytecode.keep(str(folder))
    assert kept.read_bytes() == b"first"
    assert list(kept.parent.iterdir()) == [kept]


def test_a_disk_that_is_full_leaves_no_half_of_it(
    folder: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(OSError, match="No space"):
        bytecode.keep(str(folder))
    assert list(kept.parent.iterdir()) == []


def test_its_content_is_on_the_disk_before_it_has_its_name(
    folder: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int]] = []
    fsync, link = os.fsync, os.link

    def note_fsync(file: int) -> None:
        steps.append(("fsync", os.fstat(file).st_ino))
        fsync(file)

    def note_link(source: str, target: str) -> None:
        steps.append(("link", os.stat(source).st_ino))
        link(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    bytecode.keep(str(folder))
    assert steps == [("fsync", kept.stat().st_ino), ("link", kept.stat().st_ino)]


def test_only_the_program_of_an_attempt_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere/r1/1"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", [str(folder / "worker.zip")])
    bytecode.keep(str(folder))
    assert [path.name for path in tmp_path.rglob("*")] == ["elsewhere", "r1", "1"]
