"""Tests the script that a cell becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl import job_header
from tpuctl.errors import UsageError
from tpuctl.notebook.cell_script import script_text, written

IPYTHON = "The hosts run plain Python: commands of IPython (! and %) are for other cells."


def test_lines_keep_their_numbers_below_the_line_of_the_magic() -> None:
    assert script_text("print(1)\nprint(2)").splitlines() == [
        "# a cell of a notebook",
        "print(1)",
        "print(2)",
    ]


def test_dependencies_and_framework_become_a_header_at_the_end() -> None:
    text = script_text("import numpy\n", ["numpy", "jax[tpu]>=0.5; python_version > '3'"], "jax")
    header = job_header.parse(text, "x")
    assert header.dependencies == ("numpy", "jax[tpu]>=0.5; python_version > '3'")
    assert header.tpuctl.framework == "jax"
    assert text.splitlines()[1] == "import numpy"
    compile(text, "x", "exec")


def test_the_header_of_a_cell_counts_and_no_option_adds_to_it() -> None:
    cell = '# /// script\n# dependencies = ["numpy"]\n# ///\nimport numpy\n'
    assert job_header.parse(script_text(cell), "x").dependencies == ("numpy",)
    with pytest.raises(UsageError, match="The cell has a header, and %%tpu has --dependency"):
        script_text(cell, ["scipy"])
    with pytest.raises(UsageError, match="--framework"):
        script_text(cell, framework="jax")


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        ("a = 1\nif a\n", "line 3: expected ':': if a", "Nothing was sent."),
        ("!ls\n", "line 2: invalid syntax: !ls", f"Nothing was sent. {IPYTHON}"),
        ("%time f()\n", "line 2: invalid syntax: %time f()", f"Nothing was sent. {IPYTHON}"),
        ("x = (\n", "was never closed", "Nothing was sent."),
        ("x = '\0'\n", "null bytes", "Nothing was sent."),
    ],
)
def test_a_syntax_error_is_said_with_its_line(cell: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        script_text(cell)
    assert message in raised.value.message
    assert raised.value.hint == hint


def test_code_for_another_python_is_left_to_it() -> None:
    cell = '# /// script\n# requires-python = ">=3.99"\n# ///\nnew syntax\n'
    assert "new syntax" in script_text(cell)


def test_warnings_of_the_compiler_are_for_the_run() -> None:
    assert script_text("x = 1 is 1\n")


def test_the_script_is_deleted_and_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "tpu_cell.py").write_text("mine")
    with written("a", tmp_path) as first, written("b", tmp_path) as second:
        assert (first.name, second.name) == ("tpu_cell_2.py", "tpu_cell_3.py")
        assert first.read_text() == "a"
    assert [path.name for path in tmp_path.iterdir()] == ["tpu_cell.py"]
    assert (tmp_path / "tpu_cell.py").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"cannot be written to .*missing"),
        written("a", tmp_path / "missing"),
    ):
        pass
