"""Tests the emulated TPU with several releases of TensorFlow, and writes the table in docs/tensorflow.md.

`make test-tensorflow` does so; `VERSIONS="2.16 2.21"` picks some, and writes nothing. Each release has an
environment of its own in `.tensorflow/`, with its own Keras 2 and TensorBoard; the tests run in `.venv`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = ROOT / ".tensorflow"
DOCUMENT = ROOT / "docs" / "tensorflow.md"
VERSIONS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")
"""From the first release with Keras 3 to the newest on PyPI."""

PARTS = {
    # title in the table -> the tests, below this folder
    "resolver, connecting, initialising": "test_resolver.py",
    "devices, strategy, custom loops, saving": "test_tensorflow.py",
    "Keras 3 and Keras 2": "test_keras.py",
    "same losses with 1, 2 and 8 replicas": "test_numbers.py",
    "published tutorials, unedited": "test_tutorials.py",
    "findings": "findings",
}
INTRODUCTION = """\
# Releases of TensorFlow that the emulated TPU runs

Written by `make test-tensorflow`, which runs the tests of the emulation with each release (Python {python}):
how many of the tests of each part passed. The release in constraints.txt is what `make test` runs. A release
whose private modules have changed is refused with one sentence.

"""


@dataclass(frozen=True)
class Outcome:
    """What one release passed and failed, by part."""

    version: str
    passed: Counter[str]
    failed: dict[str, list[str]]

    def cell(self, part: str) -> str:
        """Return one cell of the table."""
        passed, failed = self.passed[part], len(self.failed.get(part, ()))
        if not passed + failed:
            return "not run"
        return f"{passed} of {passed + failed}"


def main() -> int:
    """Test every requested release; the exit code is 1 when one of them failed a test."""
    versions = os.environ.get("VERSIONS", "").split() or list(VERSIONS)
    outcomes = [_tested(version) for version in versions]
    if versions == list(VERSIONS):
        DOCUMENT.write_text(_document(outcomes))
    print(_table(outcomes), _failures(outcomes), sep="\n")
    return int(any(outcome.failed for outcome in outcomes))


def _tested(version: str) -> Outcome:
    python = _environment(version)
    results = ENVIRONMENTS / f"{version}.xml"
    results.unlink(missing_ok=True)
    tests = [str(Path(__file__).parent / name) for name in PARTS.values()]
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=900", f"--junitxml={results}", *tests]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"TPUCTL_TEST_TENSORFLOW": str(python)}, check=False)
    return _outcome(version, results)


def _environment(version: str) -> Path:
    """Return the Python that has this release, made when it is not there yet."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        packages = [f"tensorflow=={version}.*", f"tf_keras=={version}.*", "tensorboard"]
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *packages], check=True)
        (folder / "ready").touch()
    return python


def _outcome(version: str, results: Path) -> Outcome:
    passed: Counter[str] = Counter()
    failed: dict[str, list[str]] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        modules = str(case.get("classname")).split(".")
        part = next(part for part, name in PARTS.items() if name.removesuffix(".py") in modules)
        if case.find("skipped") is not None:
            continue
        if case.find("failure") is None and case.find("error") is None:
            passed[part] += 1
        else:
            failed.setdefault(part, []).append(str(case.get("name")))
    return Outcome(version, passed, failed)


def _document(outcomes: list[Outcome]) -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    return INTRODUCTION.format(python=python) + _table(outcomes) + _failures(outcomes)


def _table(outcomes: list[Outcome]) -> str:
    rows = [
        ["", *(f"TensorFlow {outcome.version}" for outcome in outcomes)],
        ["---"] * (len(outcomes) + 1),
        *([part, *(outcome.cell(part) for outcome in outcomes)] for part in PARTS),
    ]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _failures(outcomes: list[Outcome]) -> str:
    """What did not pass, by name."""
    lines = [
        f"- TensorFlow {outcome.version}, {part}: {', '.join(f'`{name}`' for name in names)}\n"
        for outcome in outcomes
        for part, names in outcome.failed.items()
    ]
    return "\nWhat did not pass:\n\n" + "".join(lines) if lines else ""


if __name__ == "__main__":
    sys.exit(main())
