"""A test that fails leaves no thread that keeps pytest from its end."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

PROGRAMS = (ROOT / "tests/jobs/programs", ROOT / "tests/sim/guest/programs")
"""What runs in processes of its own."""


def waiting_threads(file: Path) -> Iterator[str]:
    """Yield where a file makes a thread that its process waits for."""
    calls = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call)]
    for call in calls:
        is_thread = ast.unparse(call.func).rpartition(".")[2] == "Thread"
        if is_thread and not any(keyword.arg == "daemon" for keyword in call.keywords):
            yield f"{file.relative_to(ROOT)}:{call.lineno}"


def test_every_thread_of_a_test_is_a_daemon() -> None:
    files = [file for file in (ROOT / "tests").rglob("*.py") if b"Thread(" in file.read_bytes()]
    own = [file for file in files if not any(folder in file.parents for folder in PROGRAMS)]
    assert len(own) > 20
    assert [place for file in own for place in waiting_threads(file)] == []
