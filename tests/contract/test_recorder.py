"""The recorder of several processes: what each has shown counts together, however tests are shared out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.contract.recorder import KEY_OF_PROCESS, Recorder
from tests.paths import ROOT

CONFTEST = """
from pathlib import Path
from tests.contract import evidence
pytest_plugins = ("tests.contract.recorder",)
evidence.FILE = Path(__file__).with_name("results.json")
"""
TESTS = """
import pytest
from tests.contract.test_table import test_what_this_run_has_shown_is_what_the_table_says

@pytest.mark.parametrize("client", ["a", "b"])
def test_client(client, recorder):
    recorder.note("method", client)
"""


def joined(*parts: dict[str, object]) -> Recorder:
    """Return the recorder of a run whose processes have returned these records."""
    recorder = Recorder()
    for part in parts:
        empty = {"passed": [], "not": [], "shown": {}, "differs": []}
        recorder.pytest_testnodedown(SimpleNamespace(workeroutput={KEY_OF_PROCESS: {**empty, **part}}))
    return recorder


def test_the_parameters_of_a_test_count_together_whichever_process_has_run_them() -> None:
    recorder = joined(
        {"passed": ["t"], "shown": {"t": [["m", "grpc"]]}}, {"passed": ["t"], "shown": {"t": [["m", "rest"]]}}
    )
    assert {cell: evidence.tests for cell, evidence in recorder.observed().items()} == {
        ("m", "grpc"): ["t"],
        ("m", "rest"): ["t"],
    }


def test_a_test_that_failed_in_one_process_proves_nothing() -> None:
    recorder = joined({"passed": ["t", "u"], "shown": {"t": [["m", "grpc"]]}}, {"not": ["t"]})
    assert recorder.passed == {"u"}
    assert recorder.observed() == {}


def test_a_process_that_died_returns_nothing() -> None:
    recorder = Recorder()
    recorder.pytest_testnodedown(SimpleNamespace())
    assert recorder.passed == set()


def test_differences_are_kept() -> None:
    differs = [["m", "c", "less"]]
    recorder = joined({"passed": ["t"], "shown": {"t": [["m", "c"]]}, "differs": differs})
    assert recorder.observed()["m", "c"].differs == "less"


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(("clients", "exit_code"), [("ab", 0), ("abc", 1)])
def test_a_run_fails_if_all_its_processes_together_contradict_the_table(
    tmp_path: Path, processes: str, clients: str, exit_code: int
) -> None:
    """The two parameters of a test run in one process, or each in its own, and show one client each."""
    evidence = {"tests": ["test_it.py::test_client"]}
    (tmp_path / "results.json").write_text(json.dumps({"method": dict.fromkeys(clients, evidence)}))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == exit_code, run.stdout + run.stderr
    assert ("the table says that c does method" in run.stdout) == (exit_code == 1)
