"""Tests that mypy --strict accepts a user's program, and sees the mistakes of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def report(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of both programs, with no other configuration than --strict."""
    kept = getattr(pytestconfig, "cache", None)  # the next run takes seconds less
    cache = kept.mkdir("mypy-of-users") if kept else tmp_path_factory.mktemp("mypy")
    scripts = [str(FOLDER / name) for name in ("user_script.py", "wrong_script.py")]
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--follow-imports=silent"]
    out, err, _ = api.run([*options, "--no-error-summary", *scripts])
    assert err == ""
    return out


@pytest.mark.slow
def test_a_users_program_is_accepted(report: str) -> None:
    assert [line for line in report.splitlines() if "user_script" in line] == []


@pytest.mark.slow
def test_mistakes_are_seen(report: str) -> None:
    text = (FOLDER / "wrong_script.py").read_text().splitlines()
    expected = {
        number: line.partition("#")[2].strip() for number, line in enumerate(text, 1) if "  # " in line
    }
    said = {
        int(line.split(":")[1]): line
        for line in report.splitlines()
        if "wrong_script" in line and "error" in line
    }
    assert said.keys() == expected.keys()
    for number, words in expected.items():
        assert words in said[number]
