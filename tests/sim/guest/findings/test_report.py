"""The report of findings: where it is written, and what can get in its way.

TensorFlow, which takes ten seconds to load, gives findings only its version and its view of the stack.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl.sim.guest import FOLDER
from tpuctl.sim.guest._tpuctl_tpu.findings.recorder import Findings, Place, Places, Settings, SlowOnTPUError

HERE = Place("train.py", 3)
Make = Callable[..., Findings]


@pytest.fixture
def findings() -> Iterator[Make]:
    """Make findings as a program on a simulated host with these variables has; they end with the test."""
    recorders = []

    def make(**variables: str) -> Findings:
        stack = SimpleNamespace(extract_stack=list)
        tensorflow: Any = SimpleNamespace(tf=SimpleNamespace(__version__="2.99"), stack=stack)
        recorders.append(Findings(Settings.from_environment(variables), tensorflow, {"accelerator": "v3-8"}))
        return recorders[-1]

    yield make
    for recorder in recorders:
        atexit.unregister(recorder.close)


def codes(path: Path) -> list[str]:
    return [finding["code"] for finding in json.loads(path.read_text())["findings"]]


def test_a_job_leaves_its_report_in_the_folder_for_reports(findings: Make, tmp_path: Path) -> None:
    recorder = findings(TPUCTL_REPORT_DIR=str(tmp_path))
    recorder.record("FLOAT64", "text", HERE)
    assert codes(tmp_path / "findings.json") == ["FLOAT64"], "it is there before the program ends"


def test_a_second_program_of_a_job_does_not_take_the_firsts_report(findings: Make, tmp_path: Path) -> None:
    findings(TPUCTL_REPORT_DIR=str(tmp_path)).record("FLOAT64", "text", HERE)
    findings(TPUCTL_REPORT_DIR=str(tmp_path)).record("HOST_OP", "text", HERE)
    assert codes(tmp_path / "findings.json") == ["FLOAT64"]
    assert codes(tmp_path / f"findings-{os.getpid()}.json") == ["HOST_OP"]


def test_a_named_file_comes_before_the_folder(findings: Make, tmp_path: Path) -> None:
    named = tmp_path / "mine.json"
    recorder = findings(TPUCTL_REPORT_DIR=str(tmp_path), TPUCTL_SIM_FINDINGS=str(named))
    recorder.record("FLOAT64", "text", HERE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_a_program_by_hand_writes_nowhere(
    findings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = findings()
    recorder.record("FLOAT64", "text", HERE)
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_did_not_use_the_tpu_has_nothing_to_report(findings: Make, tmp_path: Path) -> None:
    recorder = findings(TPUCTL_REPORT_DIR=str(tmp_path))
    recorder.close()
    assert list(tmp_path.iterdir()) == []
    recorder.used = True
    recorder.close()
    head = {"schema": 1, "tensorflow": "2.99", "accelerator": "v3-8", "checks": "warn"}
    content = json.loads((tmp_path / "findings.json").read_text())
    assert content == {**head, "traced": [], "findings": []}


def test_a_report_that_cannot_be_written_costs_one_line_and_not_the_program(
    findings: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = findings(TPUCTL_SIM_FINDINGS=str(tmp_path / "missing" / "findings.json"))
    recorder.record("FLOAT64", "text", HERE)
    recorder.record("HOST_OP", "text", HERE)
    lines = capsys.readouterr().err.splitlines()
    (message,) = [line for line in lines if "cannot be written" in line]
    assert message.endswith("missing/findings.json: No such file or directory")


def test_a_forked_child_leaves_its_parents_report_alone(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from tpuctl.sim.guest._tpuctl_tpu.findings.recorder import Report\n"
        "report = Report(sys.argv[1])\n"
        "child = os.fork()\n"
        "report.write({'child': not child})\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    path = tmp_path / "findings.json"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert json.loads(path.read_text())["child"] is False
    assert list(tmp_path.iterdir()) == [path]


def test_a_finding_is_printed_once_and_counted(
    findings: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "findings.json"
    recorder = findings(TPUCTL_SIM_FINDINGS=str(path))
    for _ in range(3):
        recorder.slow("HOST_OP", "first", HERE, "AsString")
    recorder.slow("HOST_OP", "second", HERE, "StringLength")
    recorder.slow("HOST_OP", "first", Place("train.py", 4), "AsString")
    recorder.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(". ")[0] for line in lines] == [
        "[tpu-sim] HOST_OP train.py:3: first",
        "[tpu-sim] HOST_OP train.py:3: second",
        "[tpu-sim] HOST_OP train.py:4: first",
    ]
    assert [finding["count"] for finding in json.loads(path.read_text())["findings"]] == [3, 1, 1]


@pytest.mark.parametrize(
    ("checks", "slow", "refused", "lines"),
    [("off", False, False, 0), ("warn", False, True, 2), ("error", True, True, 2)],
)
def test_the_modes(
    findings: Make, checks: str, slow: bool, refused: bool, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = findings(TPUCTL_SIM_CHECKS=checks)
    with pytest.raises(SlowOnTPUError, match="TPUCTL_SIM_CHECKS=error") if slow else nullcontext():
        recorder.slow("HOST_OP", "text", HERE)
    with pytest.raises(ValueError, match="as TensorFlow says it") if refused else nullcontext():
        recorder.refuse("RAGGED_INPUT", "text", ValueError("as TensorFlow says it"), HERE)
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TPUCTL_SIM_CHECKS": "loud"}, "TPUCTL_SIM_CHECKS=loud is not one of off, warn, error."),
        ({"TPUCTL_SIM_FINDINGS": "gs://bucket/f.json"}, "gs://bucket/f.json is not a path on this machine."),
    ],
)
def test_an_unknown_setting_is_one_clear_sentence(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings.from_environment(variables)


def test_the_place_is_the_users_innermost_line() -> None:
    layer = "/venv/lib/python3.11/site-packages/keras/src/layers/layer.py"
    generated = "/tmp/__autograph_generated_file1.py"
    files = [os.__file__, "/work/train.py", "/work/model.py", layer, generated, "<frozen runpy>"]
    frames = [SimpleNamespace(filename=file, lineno=line) for line, file in enumerate(files)]
    places = Places(SimpleNamespace(extract_stack=lambda: frames))
    assert str(places.here()) == "/work/model.py:2"
    assert str(Places(SimpleNamespace(extract_stack=list)).here()) == "(place unknown)"


def test_a_file_below_the_current_folder_is_named_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frames = [SimpleNamespace(filename=str(tmp_path / "code" / "train.py"), lineno=7)]
    assert str(Places(SimpleNamespace(extract_stack=lambda: frames)).here()) == "code/train.py:7"


def test_an_unknown_mode_ends_the_program_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("")
    environ = {
        "PYTHONPATH": os.pathsep.join(map(str, (FOLDER, tmp_path))),
        "TPUCTL_SIM_TPU": "v3-8",
        "TPUCTL_SIM_CHECKS": "loud",
    }
    completed = subprocess.run(
        [sys.executable, "-c", "import tensorflow"], env=environ, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert completed.stderr == "tpuctl simulator: TPUCTL_SIM_CHECKS=loud is not one of off, warn, error.\n"
