"""The small programs: what each says of itself, and running many of them in one process.

Each finding is made by the smallest program that has it, at the right line, and by no other.

A line that must be reported ends in a comment with the finding's code. A program that must end by an error
says so in a last line `# raises KIND: part of the text`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forks.tensorflow_python import python
from tests.paths import ROOT
from tpuctl.sim.guest import environment
from tpuctl.sim.guest._tpuctl_tpu.findings.recorder import FIXES

FOLDER = Path(__file__).parent / "programs"
CODE = re.compile(r"  # ([A-Z][A-Z0-9_]+)$")
RAISES = "# raises "


def programs(kind: str) -> list[Path]:
    """Return the programs of one kind in the order to run them."""
    return sorted((FOLDER / kind).glob("*.py"))


def expected(program: Path) -> set[tuple[str, int]]:
    """Return code and line of what must be found in a program."""
    lines = enumerate(program.read_text().splitlines(), 1)
    return {(match[1], number) for number, line in lines if (match := CODE.search(line))}


def error(program: Path) -> str:
    """Return kind and part of the text of the error that must end a program, or nothing."""
    last = program.read_text().splitlines()[-1]
    return last.removeprefix(RAISES) if last.startswith(RAISES) else ""


@dataclass(frozen=True)
class Outcome:
    """How programs ended, their findings, and their stderr."""

    endings: Mapping[str, str]
    report: Mapping[str, Any] | None
    stderr: str

    def ending(self, program: Path) -> str:
        """Return the error that ended a program, or nothing."""
        return self.endings[str(program)]

    def found(self, program: Path) -> set[tuple[str, int]]:
        """Return code and line of each finding in a program."""
        assert self.report is not None
        return {
            (finding["code"], finding["line"])
            for finding in self.report["findings"]
            if _is(program, finding["file"])
        }

    def messages(self) -> list[str]:
        """Return the lines of stderr that report findings."""
        return [line for line in self.stderr.splitlines() if line.startswith("[tpu-sim] ")]


def run(chosen: Iterable[Path], folder: Path, **variables: str) -> Outcome:
    """Run programs one after the other in one process of a simulated v3-8 with two of its cores."""
    report = folder / "findings.json"
    completed = on_host(FOLDER / "run_programs.py", *chosen, TPUCTL_SIM_FINDINGS=str(report), **variables)
    assert completed.returncode == 0, completed.stderr[-3000:]
    content = json.loads(report.read_text()) if report.exists() else None
    return Outcome(json.loads(completed.stdout.splitlines()[-1]), content, completed.stderr)


def on_host(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as on a simulated host; `variables` are added to its environment."""
    host = environment("v3-8", cores=2)
    host |= {"PYTHONPATH": os.pathsep.join([str(FOLDER), host["PYTHONPATH"]]), "TPU_NAME": "local"}
    return python(*arguments, variables=host | variables)


def _is(program: Path, file: str) -> bool:
    return program == Path(file) or program == Path.cwd() / file


pytestmark = pytest.mark.slow
TEXT = (ROOT / "docs/findings.md").read_text()
DOCUMENTED = dict(re.findall(r"^### (\w+) \((refused|slow)\)$", TEXT, re.MULTILINE))
"""Code -> whether a TPU refuses it or is slow."""

FOUND, CANDIDATES, REMOTE = programs("found"), programs("quiet"), programs("remote")
SLOW = [
    program
    for program in FOUND
    if program.stem in {"float64", "partial_batch", "recompilation", "no_such_core"}
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A local TPU; by their names, the programs that do something too early come first."""
    return run([*FOUND, *CANDIDATES], tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A TPU found by the node's name, whose worker is another process; what is slow is an error too."""
    folder = tmp_path_factory.mktemp("strict")
    named = {"TPU_NAME": "big", "TPUCTL_SIM_NODE": "big", "TPUCTL_SIM_CHECKS": "error"}
    return run([*REMOTE, *SLOW], folder, **named)


@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.stem)
def test_a_program_is_told_at_its_line(local: Outcome, program: Path) -> None:
    assert expected(program)
    assert local.found(program) == expected(program)


@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.stem)
def test_what_a_tpu_refuses_ends_the_program_and_what_it_does_slowly_does_not(
    local: Outcome, program: Path
) -> None:
    _assert_ends(local, program)


@pytest.mark.parametrize("program", CANDIDATES, ids=lambda program: program.stem)
def test_a_program_that_suits_a_tpu_is_told_nothing(local: Outcome, program: Path) -> None:
    assert local.ending(program) == ""
    assert local.found(program) == set()


def test_nothing_is_said_of_programs_that_suit_a_tpu(local: Outcome) -> None:
    assert not [line for line in local.messages() if "/quiet/" in line or "place unknown" in line]


@pytest.mark.parametrize("program", REMOTE, ids=lambda program: program.stem)
def test_a_remote_worker_cannot_reach_local_files(strict: Outcome, program: Path) -> None:
    assert strict.found(program) == expected(program)
    _assert_ends(strict, program)


def _assert_ends(outcome: Outcome, program: Path) -> None:
    """AutoGraph prints its own position before the text."""
    (kind, _, text), ending = error(program).partition(": "), outcome.ending(program)
    assert bool(ending) == bool(kind), ending
    assert ending.startswith(kind)
    assert text in ending


def test_every_code_has_a_program_that_has_it() -> None:
    assert (
        {code for program in (*FOUND, *REMOTE) for code, _ in expected(program)}
        == set(FIXES)
        == set(DOCUMENTED)
    )


def test_the_document_has_the_fix_of_every_code() -> None:
    assert [code for code, fix in FIXES.items() if f"Fix: {fix}\n" not in TEXT] == []


def test_a_finding_is_refused_exactly_where_its_kind_says_so(local: Outcome) -> None:
    assert local.report is not None
    for finding in local.report["findings"]:
        placed_too_early = "is used before the TPU is initialized" in finding["text"]
        assert finding["refused"] == (DOCUMENTED[finding["code"]] == "refused" and not placed_too_early), (
            finding
        )


def test_each_finding_is_one_line_that_is_said_once(local: Outcome) -> None:
    lines = local.messages()
    assert local.report is not None
    assert len(lines) == len(local.report["findings"]) == len(set(lines))
    program = next(other for other in FOUND if other.stem == "float64")
    (line,) = [line for line in lines if line.startswith("[tpu-sim] FLOAT64") and f"{program.name}:" in line]
    assert f"{program.name}:6: Cast computes in float64, which a TPU emulates, slowly. Use float32" in line


def test_the_report_says_what_the_slice_was_and_what_was_traced_how_often(local: Outcome) -> None:
    report = local.report
    assert report is not None
    assert (report["schema"], report["accelerator"], report["replicas"]) == (1, "v3-8", 2)
    assert report["checks"] == "warn"
    traced = {(Path(function["file"]).stem, function["signatures"]) for function in report["traced"]}
    assert {("recompilation", 3), ("recompilation_by_shape", 3), ("float64", 1)} <= traced
    (float64,) = [finding for finding in report["findings"] if Path(finding["file"]).stem == "float64"]
    assert set(float64) == {"code", "refused", "file", "line", "count", "text", "fix"}
    assert float64["count"] > 1


def test_a_recompilation_lists_the_signatures_that_differ(local: Outcome) -> None:
    lines = [line for line in local.messages() if line.startswith("[tpu-sim] RECOMPILATION")]
    text = "step was traced for 3 signatures, and a TPU compiles its program for each: "
    assert any(
        text + "(float32[2], 0); (float32[2], 1); (float32[2], 2). Pass tensors" in line for line in lines
    )
    assert any("each: (float32[1]); (float32[2]); (float32[3]). Pass" in line for line in lines)
    nested = "(float32[2], float32[4, 1], 1, 7); (float32[2], float32[4, 1], 2, 7); "
    assert any(text + nested in line for line in lines)
    (objects,) = [line for line in lines if "/recompilation_by_an_object.py:" in line]
    assert len(set(re.findall(r"\(float32\[2\], <lambda> #\d+\)", objects))) == 3


@pytest.mark.parametrize("program", SLOW, ids=lambda program: program.stem)
def test_under_error_what_is_slow_ends_the_program_too(strict: Outcome, program: Path) -> None:
    ((code, _),) = expected(program)
    assert strict.ending(program).startswith("SlowOnTPUError: ")
    assert f"{code}: " in strict.ending(program)
    assert strict.found(program) == expected(program)


def test_under_off_nothing_is_said_or_written_or_refused(tmp_path: Path) -> None:
    chosen = {
        "unsupported_op", "string_input", "ragged_input", "sparse_input", "unknown_rank", "float64",
        "b_not_initialized_device", "recompilation", "host_variable", "no_such_core", "partial_batch",
    }  # fmt: skip
    outcome = run([program for program in FOUND if program.stem in chosen], tmp_path, TPUCTL_SIM_CHECKS="off")
    assert len(outcome.endings) == len(chosen)
    assert set(outcome.endings.values()) == {""}
    assert outcome.messages() == []
    assert outcome.report is None
