"""The forks that run the tests: their reports are those of a run in one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuctl.polling import poll

pytestmark = pytest.mark.slow

TESTS = """
import os, sys
import pytest
with open("collected", "a") as file:
    print("x", file=file)

def test_passes(tmp_path):
    with open("pids", "a") as file:
        print(os.getpid(), file=file)

def test_fails():
    print("what a test prints")
    assert 1 == 2

@pytest.mark.skip(reason="a reason")
def test_is_skipped():
    pass
"""
DIES = """
import os
def test_before(): pass
def test_dies(): os._exit(7)
def test_after(): pass
"""
DIES_BETWEEN = """
import os
from multiprocessing.connection import Connection
def test_passes(): Connection.recv = lambda _: os._exit(7)
"""
WAITS = """
import os, time
def test_waits(tmp_path):
    try:
        with open("waiting", "w") as file: print(os.getpid(), file=file, flush=True)
        time.sleep(600)
    finally:
        open("cleaned_up", "w")
"""


def command(*options: str) -> list[str]:
    plugin = ("-p", "tests.ordering.processes", "-p", "no:cacheprovider")
    return [sys.executable, "-m", "pytest", *plugin, "--processes=2", *options]


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on files of tests."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DEBUG_TEMPROOT": str(folder)}
    return subprocess.run(
        command(*options),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_several_processes_run_what_one_has_collected_and_their_reports_come_together(tmp_path: Path) -> None:
    ended = run(tmp_path, "-rs", a=TESTS, b=TESTS, c=TESTS)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stderr
    assert "3 failed, 3 passed, 3 skipped in" in ended.stdout
    assert ended.stdout.count("\nwhat a test prints\n") == 3
    assert "SKIPPED [1] test_a.py:15: a reason" in ended.stdout
    assert (tmp_path / "collected").read_text() == "x\n" * 3, "one process reads the files"
    assert len(set((tmp_path / "pids").read_text().split())) == 2


def test_the_cases_of_a_test_that_is_spread_run_in_several_processes(tmp_path: Path) -> None:
    text = TESTS.replace(
        "def test_passes(",
        "@pytest.mark.spread\n@pytest.mark.parametrize('n', range(9))\ndef test_passes(n, ",
    )
    ended = run(tmp_path, a=text)
    assert "1 failed, 9 passed, 1 skipped" in ended.stdout
    assert len(set((tmp_path / "pids").read_text().split())) == 2


def test_what_ends_its_process_fails_and_another_process_runs_the_rest_of_the_file(tmp_path: Path) -> None:
    ended = run(tmp_path, "-v", a=DIES)
    assert re.findall(r"test_a.py::(\w+) (\w+)", ended.stdout) == [
        ("test_before", "PASSED"), ("test_dies", "FAILED"), ("test_after", "PASSED")
    ]  # fmt: skip
    assert "the process that ran it ended with 7" in ended.stdout


def test_of_a_process_that_ends_between_two_files_the_next_test_fails(tmp_path: Path) -> None:
    ended = run(tmp_path, a=DIES_BETWEEN, b=DIES_BETWEEN, c=DIES_BETWEEN)
    assert "the process that ran it ended with 7" in ended.stdout
    assert "1 failed, 2 passed" in ended.stdout


def test_a_test_that_takes_too_long_fails_and_says_so(tmp_path: Path) -> None:
    result = run(tmp_path, "--timeout=1", waits=WAITS)
    assert re.search(r"Failed: Timeout \(>1\.0s\)", result.stdout), result.stdout
    assert (tmp_path / "cleaned_up").exists()


def test_after_the_first_failure_nothing_more_is_run_if_so_asked(tmp_path: Path) -> None:
    ended = run(tmp_path, "-x", a=TESTS.replace("def test_passes", "def nothing"), b=WAITS)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in ended.stdout
    assert (tmp_path / "waiting").exists() == (tmp_path / "cleaned_up").exists()


def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """Each ends by itself after the test that it runs."""
    (tmp_path / "test_a.py").write_text(WAITS.replace("600", "0.5"))
    (tmp_path / "test_b.py").write_text(WAITS.replace('"waiting"', '"other"').replace("600", "0.5"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        poll(lambda: (tmp_path / "waiting").exists() or None, awaiting="a test", timeout=60)
        process.send_signal(signal.SIGKILL)
        assert process.stdout
        process.stdout.read()  # to its end, which is that of all who have it
    assert (tmp_path / "cleaned_up").exists()


def test_an_interrupted_run_cleans_up(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(WAITS)
    (tmp_path / "test_b.py").write_text(DIES)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        poll(lambda: (tmp_path / "waiting").exists() or None, awaiting="a test", timeout=60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert (tmp_path / "cleaned_up").exists()
