"""What a host keeps of a run for a reboot: the spec, and the command that cron runs."""

from __future__ import annotations

import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC
from tpuctl.host.worker import resumption
from tpuctl.host.worker.records import Resumption, encode

OWN = replace(SPEC, resumption=Resumption(2, "nodes/n/runs/"))


def test_the_spec_is_read_as_it_was_kept_and_by_nobody_else(tmp_path: Path) -> None:
    resumption.keep(OWN, str(tmp_path))
    spec = resumption.read(str(tmp_path))
    assert spec
    assert (spec.run, spec.key, spec.resumption) == ("r1", OWN.key, OWN.resumption)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"resume.json": 0o600, "resume": 0o600}


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", encode(SPEC)])
def test_what_is_no_spec_of_a_run_that_resumes_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "resume.json").write_bytes(content)
    assert resumption.read(str(tmp_path)) is None


def test_both_files_are_forgotten(tmp_path: Path) -> None:
    resumption.keep(OWN, str(tmp_path))
    resumption.forget(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    resumption.forget(str(tmp_path))


def test_the_command_runs_the_program_as_the_login_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b's"
    folder.mkdir()
    for name in ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LANG", "de DE")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setenv("OTHER", "x")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$LANG" "$OTHER" "$@"; echo oh >&2\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    resumption.keep(OWN, str(folder))
    done = subprocess.run(
        ["/bin/sh", str(folder / "resume")], cwd="/", env={}, input=b"x", capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert (folder / "supervisor.log").read_text().splitlines() == [
        str(tmp_path), "de DE", "", str(folder / "worker.zip"), "resume", str(folder), "oh",
    ]  # fmt: skip


def test_the_command_sets_what_the_login_had_and_cron_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "USER")
    for name in names:
        monkeypatch.setenv(name, f"{name} here")
    resumption.keep(OWN, str(tmp_path))
    text = (tmp_path / "resume").read_text()
    assert text.splitlines()[1:-1] == [f"export {name}='{name} here'" for name in names]
    assert text.endswith("2>&1\n")


def test_a_relative_folder_is_kept_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    resumption.keep(OWN, ".")
    assert f"{tmp_path}/worker.zip" in (tmp_path / "resume").read_text()
