"""The small programs: what each says of itself, and running many of them in one process.

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

from tests.forks.tensorflow_python import python
from tpuctl.sim.guest import environment

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
