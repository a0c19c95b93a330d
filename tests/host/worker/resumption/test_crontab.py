"""The line in the crontab: one, beside those of the user."""

from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tpuctl.host.worker import resumption
from tpuctl.sim.hosts import host as simulated


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user on a host, whose crontab is that of the simulator."""
    place = simulated.install(tmp_path)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("TPUCTL_SIM_DISK", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_lines_of_the_user_stay_and_one_of_ours_is_added_once(home: Path) -> None:
    own = "15 3 * * * echo '100\\%'"
    subprocess.run(["crontab", "-"], input=f"{own}\n@reboot old {resumption.NOTE}\n".encode(), check=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: resumption.ensure(), range(4)))
    assert (home / "crontab").read_text().splitlines() == [own, resumption.LINE]


def test_the_line_runs_each_command_that_is_kept_and_nothing_else(home: Path) -> None:
    for name in ("r1/1/resume", "r1/2/started", "r2/1/resume"):
        path = home / ".tpuctl/runs" / name
        path.parent.mkdir(parents=True)
        path.write_text(f"echo {name} >>$HOME/said\n")
    command = resumption.LINE.split(None, 1)[1]
    subprocess.run(["sh", "-c", command], cwd=home, check=True, timeout=60)
    assert sorted((home / "said").read_text().split()) == ["r1/1/resume", "r2/1/resume"]


def test_without_any_run_the_line_does_nothing(home: Path) -> None:
    command = resumption.LINE.split(None, 1)[1]
    assert subprocess.run(["sh", "-c", command], cwd=home, check=True, capture_output=True).stderr == b""


def test_lines_in_other_encodings_stay_as_they_are(home: Path) -> None:
    own = b"15 3 * * * echo caf\xe9 \xc3\xa9\n"
    subprocess.run(["crontab", "-"], input=own, check=True)
    resumption.ensure()
    assert (home / "crontab").read_bytes() == own + resumption.LINE.encode() + b"\n"


def test_whoever_adds_the_line_waits_for_its_turn_in_the_runs_own_folder(home: Path) -> None:
    resumption.ensure()
    assert sorted(path.name for path in (home / ".tpuctl").iterdir()) == ["crontab.lock"]
    assert stat.S_IMODE((home / ".tpuctl").stat().st_mode) == 0o700


@pytest.mark.parametrize(("argument", "command"), [("-l", "crontab -l"), ("-", "crontab")])
def test_what_cron_says_against_it_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, argument: str, command: str
) -> None:
    program = home / "refusing/crontab"
    program.parent.mkdir()
    refuses = "printf ' you may not, Jos\\351\\n' >&2; exit 1"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = "{argument}" ]; then {refuses}; fi\ncat >/dev/null </dev/null\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(OSError, match="you may not") as refused:
        resumption.ensure()
    assert str(refused.value) == f"{command}: you may not, Jos\ufffd"


def test_a_host_without_cron_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "nothing"))
    with pytest.raises(OSError, match="this host has no crontab"):
        resumption.ensure()
