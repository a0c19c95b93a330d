"""The report of findings: where it is written, and what can get in its way.

The operations of a program, with those of its functions.

TensorFlow, which takes ten seconds to load, gives findings only its version and its view of the stack.

The graph is one of this file: TensorFlow, which makes real ones, takes ten seconds to load.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tpuctl.sim.guest import FOLDER
from tpuctl.sim.guest._tpuctl_tpu.findings.recorder import Findings, Place, Places, Settings, SlowOnTPUError
from tpuctl.sim.guest._tpuctl_tpu.findings.replicas import ends_in_checks, walk
from tpuctl.sim.guest._tpuctl_tpu.tf_objects import Graph, Operation

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


@dataclass
class Op:
    """An operation: its name, the functions it calls, the operations that take what it yields."""

    name: str
    calls: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    """Functions of one attribute, as those of a case."""
    consumers: list[Op] = field(default_factory=list)
    type: str = "Add"

    @property
    def op_def(self) -> Any:
        attributes = [SimpleNamespace(name=name, type="func") for name in self.calls]
        listed = [SimpleNamespace(name="branches", type="list(func)")] if self.branches else []
        return SimpleNamespace(attr=[SimpleNamespace(name="T", type="type"), *attributes, *listed])

    @property
    def node_def(self) -> Any:
        names = {name: _value(name, ()) for name in self.calls}
        return SimpleNamespace(attr={**names, "branches": _value("", self.branches)})

    @property
    def outputs(self) -> list[Any]:
        return [SimpleNamespace(consumers=lambda: self.consumers)] if self.consumers else []


class Ops:
    """A graph: its operations, the graphs of its functions by their names, and the graph around it."""

    def __init__(self, operations: list[Op], functions: dict[str, Ops | None] | None = None) -> None:
        self._operations = operations
        self._functions = functions or {}
        self.outer_graph: Ops | None = None
        for inner in self._functions.values():
            if inner is not None:
                inner.outer_graph = self

    def get_operations(self) -> list[Op]:
        return self._operations

    def _get_function(self, name: str) -> Any:
        graph = self._functions.get(name)
        without_source = SimpleNamespace()
        return SimpleNamespace(graph=graph) if graph else without_source if name in self._functions else None


def _value(name: str, listed: tuple[str, ...]) -> Any:
    functions = [SimpleNamespace(name=function) for function in listed]
    return SimpleNamespace(func=SimpleNamespace(name=name), list=SimpleNamespace(func=functions))


def names(graph: Ops) -> list[str]:
    walked = walk(cast(Graph, graph), cast("list[Operation]", graph.get_operations()))
    return [operation.name for operation in walked]


def test_the_operations_of_functions_follow_those_that_call_them() -> None:
    inner = Ops([Op("deep")])
    functions: dict[str, Ops | None] = {
        "f": Ops([Op("in f", calls=("g",))], {"g": inner}),
        "then": Ops([Op("yes")]),
        "else": Ops([Op("no")]),
    }
    graph = Ops([Op("first"), Op("call", calls=("f",)), Op("case", branches=("then", "else"))], functions)
    assert names(graph) == ["first", "call", "case", "in f", "yes", "no", "deep"]


def test_a_function_that_several_operations_call_counts_once() -> None:
    graph = Ops([Op("one", calls=("f",)), Op("two", calls=("f",))], {"f": Ops([Op("in f")])})
    assert names(graph) == ["one", "two", "in f"]


def test_a_function_that_calls_itself_ends() -> None:
    graph = Ops([Op("call", calls=("f",))], {"f": Ops([Op("in f", calls=("f",))])})
    assert names(graph) == ["call", "in f"]


def test_a_function_calls_those_around_it() -> None:
    functions: dict[str, Ops | None] = {"f": Ops([Op("in f", calls=("g",))]), "g": Ops([Op("in g")])}
    assert names(Ops([Op("call", calls=("f",))], functions)) == ["call", "in f", "in g"]


def test_a_function_without_source_or_from_nowhere_adds_nothing() -> None:
    graph = Ops([Op("one", calls=("of a file",)), Op("two", calls=("nowhere",))], {"of a file": None})
    assert names(graph) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("add", True),
        ("replica_1/add", False),
        ("model/replica_12/add", False),
        ("model/replica_7", False),
        ("replica_1", False),
        ("replica_/add", True),
        ("my_replica_1/add", True),
        ("replica_1st/add", True),
    ],
)
def test_the_operations_of_other_replicas_repeat_the_first(name: str, is_there: bool) -> None:
    assert names(Ops([Op(name)])) == ([name] if is_there else [])


CHECK = Op("check", type="Assert")


@pytest.mark.parametrize(
    ("operation", "ends"),
    [
        (Op("unused"), False),
        (Op("checked", consumers=[CHECK]), True),
        (Op("used too", consumers=[CHECK, Op("sum")]), False),
        (Op("compared", consumers=[Op("equal", consumers=[CHECK])]), True),
        (Op("compared and used", consumers=[Op("equal", consumers=[CHECK, Op("sum")])]), False),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else None,
)
def test_what_only_checks_use_ends_in_them(operation: Op, ends: bool) -> None:
    assert ends_in_checks(cast(Operation, operation)) is ends
