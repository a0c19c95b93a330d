"""The recorder of several processes: what each has shown counts together, however tests are shared out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.recorder import SHOWN, Recorder
from tests.paths import ROOT

CONFTEST = """
from pathlib import Path
from tests.contract import evidence
pytest_plugins = ("tests.contract.recorder", "tests.ordering.processes")
evidence.FILE = Path(__file__).with_name("results.json")
"""
TESTS = """
import pytest

@pytest.fixture
def recorder(request):
    return request.config.pluginmanager.get_plugin("contract")

@pytest.mark.parametrize("client", ["a", "b"])
def test_client(client, recorder):
    recorder.note("method", client)
"""


def report(test: str, outcome: str, *shown: tuple[str, str, str]) -> pytest.TestReport:
    """Return the report of a test's call, with the cells that it shows."""
    return pytest.TestReport(
        test, ("", 0, ""), {}, outcome, None, "call", user_properties=[(SHOWN, list(shown))]
    )


def recorded(*reports: pytest.TestReport) -> Recorder:
    recorder = Recorder()
    for part in reports:
        recorder.pytest_runtest_logreport(part)
    return recorder


def test_the_parameters_of_a_test_count_together() -> None:
    recorder = recorded(
        report("t[grpc]", "passed", ("m", "grpc", "")), report("t[rest]", "passed", ("m", "rest", ""))
    )
    assert {cell: evidence.tests for cell, evidence in recorder.observed().items()} == {
        ("m", "grpc"): ["t"],
        ("m", "rest"): ["t"],
    }


def test_a_test_that_failed_with_one_parameter_proves_nothing() -> None:
    recorder = recorded(
        report("t[a]", "passed", ("m", "grpc", "")), report("t[b]", "failed"), report("u", "passed")
    )
    assert recorder.passed == {"u"}
    assert recorder.observed() == {}


def test_differences_are_kept() -> None:
    recorder = recorded(report("t", "passed", ("m", "c", "less")))
    assert recorder.observed()["m", "c"].differs == "less"


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(("clients", "exit_code"), [("ab", 0), ("abc", 1)])
def test_a_run_fails_if_all_its_processes_together_contradict_the_table(
    tmp_path: Path, processes: str, clients: str, exit_code: int
) -> None:
    """The two parameters of a test show one client each."""
    evidence = {"tests": ["test_it.py::test_client"]}
    (tmp_path / "results.json").write_text(json.dumps({"method": dict.fromkeys(clients, evidence)}))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("test_it.py", "test_other.py"):
        (tmp_path / name).write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--processes", processes, "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == exit_code, run.stdout + run.stderr
    assert ("the table says that c does method" in run.stdout) == (exit_code == 1)
