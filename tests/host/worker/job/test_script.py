"""The script's process: started as a file, whatever the file is called."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC
from tests.hostile.names import NAMES
from tpuctl.host.worker.job.script import Script, Sentinel, command
from tpuctl.host.worker.records import COMMAND, MODULE, SCRIPT, SHELL
from tpuctl.polling import Backoff, poll

FILE_NAMES = [name for name in NAMES.values() if "/" not in name and 0 < len(name) < 250]


@pytest.mark.parametrize("name", ["-c", "-cimport os.py", "-m", "--help", *FILE_NAMES])
def test_a_script_of_any_name_is_run_and_passes_for_no_option(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("import sys\nprint(sys.argv)\n")
    started = command(replace(SPEC, script=name, arguments=["--rate"]), {}, sys.executable)
    script = Script(started, str(tmp_path), {}, str(tmp_path / "log.txt"), str(tmp_path / "lock"))
    codes = poll(
        lambda: None if script.poll() is None else [script.poll()], awaiting="its end", timeout=60,
        backoff=Backoff(0.02),
    )  # fmt: skip
    assert (codes, (tmp_path / "log.txt").read_text()) == ([0], f"{[name, '--rate']}\n")


def test_what_was_printed_before_a_script_does_not_count_as_its_output(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("installing jax\n")
    os.utime(tmp_path / "log", (7, 7))
    Script(["true"], str(tmp_path), {}, str(tmp_path / "log"), str(tmp_path / "lock"))._process.wait()
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


@pytest.mark.parametrize(
    ("kind", "script", "directory", "started"),
    [
        (SCRIPT, "scripts/a.py", "", [sys.executable, "-u", "--", "scripts/a.py"]),
        (SCRIPT, "scripts/a.py", "scripts", [sys.executable, "-u", "--", "a.py"]),
        (SCRIPT, "a.py", "deep/er", [sys.executable, "-u", "--", "../../a.py"]),
        (MODULE, "pkg.train", "src", [sys.executable, "-u", "-m", "pkg.train"]),
        (SHELL, "run.sh", "", ["/bin/bash", "--", "run.sh"]),
        (COMMAND, "python", "", ["python"]),
    ],
)
def test_each_kind_of_program_has_its_command(
    kind: str, script: str, directory: str, started: list[str]
) -> None:
    spec = replace(SPEC, kind=kind, script=script, directory=directory, arguments=["--x", "1"])
    assert command(spec, {}, sys.executable) == [*started, "--x", "1"]


def test_arguments_have_the_values_of_documented_variables_alone() -> None:
    words = ["--workdir={TPUCTL_MODEL_DIR}/a", "{TPUCTL_RUN}{TPUCTL_WORKER}", "{HOME}", "{TPUCTL_X}", "{{x}}"]
    variables = {
        "TPUCTL_MODEL_DIR": "gs://b/o",
        "TPUCTL_RUN": "r",
        "TPUCTL_WORKER": "0",
        "HOME": "/",
        "TPUCTL_X": "secret",
    }
    filled = command(replace(SPEC, arguments=words), variables, sys.executable)[-5:]
    assert filled == ["--workdir=gs://b/o/a", "r0", "{HOME}", "{TPUCTL_X}", "{{x}}"]
