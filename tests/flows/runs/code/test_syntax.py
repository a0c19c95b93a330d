"""Syntax errors are found before anything is sent, unless another Python is to run the script."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.project_imports import check_syntax
from tpuctl.job_header import Header

NEXT = f">={sys.version_info.major}.{sys.version_info.minor + 1}"
THIS = f">={sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text("import os\nprint('so far'\n")
    return path


@pytest.mark.parametrize("requires", ["", THIS, ">=3.8"])
def test_the_line_of_an_error_is_shown(script: Path, requires: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_syntax([script], Header(requires))
    expected = f"{script} has a syntax error, line 2: '(' was never closed: print('so far'."
    assert refused.value.message == expected
    assert refused.value.facts == {"file": str(script), "line": 2}


@pytest.mark.parametrize("requires", [NEXT, "<3.0"])
def test_a_script_for_another_python_is_not_refused_and_it_is_said(script: Path, requires: str) -> None:
    (note,) = check_syntax([script], Header(requires))
    assert note.startswith(f"{script} has a syntax error, line 2: ")
    assert f"The run is submitted anyway: it asks for Python {requires}, and this is 3." in note


@pytest.mark.parametrize(
    "content",
    [
        b"print('a')\n", b"", b"# -*- coding: latin-1 -*-\nname = '\xe9'\n", b"\xef\xbb\xbfprint(1)\r\n",
        b"print('\\d')\n", b"async def main():\n    await main()\n",
    ],
    ids=["plain", "empty", "latin-1", "byte order mark", "warning", "coroutine"],
)  # fmt: skip
def test_what_python_accepts_is_accepted_without_a_word(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(content)
    assert check_syntax([path], Header()) == []


@pytest.mark.parametrize("content", [b"a = '\x00'\n", b"name = '\xe9'\n", b"return 1\n", b"\tx\n y\n"])
def test_whatever_python_refuses_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="has a syntax error"):
        check_syntax([path], Header())


@pytest.mark.parametrize(
    "content", ["-" * 200_000 + "1", "a" + ".b" * 100_000, "x = " + "+".join("1" * 100_000)]
)
def test_a_file_that_is_nested_too_deep_is_no_bug(tmp_path: Path, content: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(content)
    (note,) = check_syntax([path], Header())
    assert note == f"{path} is nested too deep to be checked for syntax errors."


def test_the_hint_says_that_nothing_was_sent_and_which_python_this_is(script: Path) -> None:
    with pytest.raises(UsageError) as refused:
        check_syntax([script], Header())
    assert refused.value.hint == (
        f"Nothing was sent. This is Python {platform.python_version()}; a script for a newer one says so in"
        ' its header, such as requires-python = ">=3.13".'
    )


def test_every_file_is_checked_and_each_note_is_kept(script: Path, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("-" * 200_000 + "1")
    notes = check_syntax([tmp_path / "deep.py", script], Header(NEXT))
    assert [note.split()[0] for note in notes] == [str(tmp_path / "deep.py"), str(script)]
