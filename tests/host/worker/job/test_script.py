"""The script's process: started as a file, whatever the file is called."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.hostile.names import NAMES
from tpuctl.host.worker.job.script import Script, Sentinel
from tpuctl.polling import Backoff, poll

FILE_NAMES = [name for name in NAMES.values() if "/" not in name and 0 < len(name) < 250]


@pytest.mark.parametrize("name", ["-c", "-cimport os.py", "-m", "--help", *FILE_NAMES])
def test_a_script_of_any_name_is_run_and_passes_for_no_option(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("import sys\nprint(sys.argv)\n")
    script = Script([name, "--rate"], str(tmp_path), {}, str(tmp_path / "log.txt"), str(tmp_path / "lock"))
    codes = poll(
        lambda: None if script.poll() is None else [script.poll()], awaiting="its end", timeout=60,
        backoff=Backoff(0.02),
    )  # fmt: skip
    assert (codes, (tmp_path / "log.txt").read_text()) == ([0], f"{[name, '--rate']}\n")


def test_what_was_printed_before_a_script_does_not_count_as_its_output(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("")
    (tmp_path / "log").write_text("installing jax\n")
    os.utime(tmp_path / "log", (7, 7))
    Script(["silent.py"], str(tmp_path), {}, str(tmp_path / "log"), str(tmp_path / "lock"))._process.wait()
    assert (tmp_path / "log").stat().st_mtime > 7


def test_a_sentinel_notices_the_signal_of_a_host_and_ends_when_it_is_closed() -> None:
    signalled, closed = Sentinel(), Sentinel()
    assert [signalled.is_signalled, closed.is_signalled] == [False, False]
    os.kill(signalled.pid, signal.SIGTERM)
    poll(lambda: signalled.is_signalled or None, awaiting="its end", timeout=60, backoff=Backoff(0.02))
    assert not closed.is_signalled
    closed.close()
    assert closed.is_signalled
    signalled.close()
