"""A notebook is run cell by cell in one process, and comes back with its outputs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuctl.host.worker.job import cells


def run(folder: Path, *sources: str, tags: tuple[str, ...] = ()) -> tuple[int, str, list[dict[str, Any]]]:
    """Run such cells as a host does; return exit code, log, and the cells that came back."""
    code = [
        {"cell_type": "code", "metadata": {"tags": list(tags)}, "source": source, "outputs": ["old"]}
        for source in sources
    ]
    notebook = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": "# A"}, *code], "nbformat": 4}
    (folder / "a.ipynb").write_text(json.dumps({**notebook, "metadata": {}, "nbformat_minor": 5}))
    shutil.copy(cells.__file__, folder / "cells.py")
    program = [sys.executable, "-u", "cells.py", "a.ipynb", "written.ipynb", "--lr", "1"]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    written = json.loads((folder / "written.ipynb").read_text())
    return done.returncode, done.stdout, [cell for cell in written["cells"] if cell["cell_type"] == "code"]


def test_each_cell_has_what_it_printed_and_showed_and_the_log_has_it_too(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 7\n")
    rich = "from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\nx"
    code, log, ran = run(
        tmp_path, "import sys, beside\nx = beside.SIZE\nprint(sys.argv)", "!echo shell; exit 3", "_exit_code",
        rich, "%pip install numpy\n!python3 -m pip install jax",
    )  # fmt: skip
    assert code == 0
    assert "['a.ipynb', '--lr', '1']\nshell\n3\n<IPython.core.display.HTML object>\n7\n" in log
    assert "not run: pip install numpy" in log
    assert "not run: python3 -m pip install jax" in log
    stream, shell, status, shown, _ = (cell["outputs"] for cell in ran)
    assert stream == [{"output_type": "stream", "name": "stdout", "text": "['a.ipynb', '--lr', '1']\n"}]
    assert shell == [{"output_type": "stream", "name": "stdout", "text": "shell\n"}]
    assert status == [
        {"output_type": "execute_result", "data": {"text/plain": "3"}, "metadata": {}, "execution_count": 3}
    ]
    assert [each["output_type"] for each in shown] == ["display_data", "execute_result"]
    assert shown[0]["data"]["text/html"] == "<b>x</b>"
    assert [cell["execution_count"] for cell in ran] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("source", "code", "name"),
    [("1 / 0", 1, "ZeroDivisionError"), ("raise SystemExit(3)", 3, "SystemExit"), ("x =", 1, "SyntaxError")],
)
def test_the_first_cell_that_fails_is_the_last(tmp_path: Path, source: str, code: int, name: str) -> None:
    returned, log, ran = run(tmp_path, "print('begun')", source, "print('never')")
    assert (returned, "begun" in log, "never" in log) == (code, True, False)
    assert (ran[1]["outputs"][-1]["ename"], ran[2]["outputs"]) == (name, [])


def test_a_cell_that_is_to_fail_does_not_end_it(tmp_path: Path) -> None:
    returned, log, _ = run(tmp_path, "1 / 0", "print('next')", tags=("raises-exception",))
    assert (returned, "next\n" in log) == (0, True)
