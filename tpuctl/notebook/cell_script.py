"""Makes a script of a cell, which stands in the notebook's folder while it is submitted."""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tpuctl import job_header
from tpuctl.errors import UsageError

STEM = "tpu_cell"
"""Of the script, and so of the run's name."""
MOST = 1000
"""Cells of one folder that may be submitted at once."""
FIRST_LINE = "# a cell of a notebook"
"""Stands where the cell has %%tpu, so that the lines of a traceback are those of the cell."""


def script_text(cell: str, dependencies: Sequence[str] = (), framework: str | None = None) -> str:
    """Return the text of a cell's script, with a header of PEP 723 for what its options ask for.

    Raises UsageError for a syntax error, and where both the cell and the options have requirements.
    """
    text = f"{FIRST_LINE}\n{cell}" if cell.endswith("\n") else f"{FIRST_LINE}\n{cell}\n"
    header = job_header.parse(text, "the cell")
    if (dependencies or framework) and header != job_header.Header():
        option = "--dependency" if dependencies else "--framework"
        raise UsageError(f"The cell has a header, and %%tpu has {option}.", hint="Write it into the header.")
    if header.accepts_python(platform.python_version()):
        _check_syntax(text)
    return text + _header(dependencies, framework)


@contextmanager
def written(text: str, folder: Path) -> Iterator[Path]:
    """Write a script into a folder, beside the modules that it may import, and delete it in the end."""
    path = _write(text, folder)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write(text: str, folder: Path) -> Path:
    for number in range(1, MOST):
        path = folder / (f"{STEM}_{number}.py" if number > 1 else f"{STEM}.py")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"The cell cannot be written to {path}: {error.strerror}.",
                hint="It is sent from the notebook's folder, with the modules there that it imports.",
            ) from error
        return path
    raise UsageError(f"There are {MOST} scripts of cells in {folder}.", hint=f"Delete {STEM}_*.py there.")


def _check_syntax(text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the cell are for its own run
            compile(text, "the cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        code = text.splitlines()[line - 1].strip() if line and line <= text.count("\n") else ""
        place = f"line {line}: " if line else ""
        problem = f"{place}{getattr(error, 'msg', error)}{f': {code}' if code else ''}"
        hint = "Nothing was sent."
        if code.startswith(("!", "%")):
            hint += " The hosts run plain Python: commands of IPython (! and %) are for other cells."
        raise UsageError(f"The cell has a syntax error, {problem}", hint=hint, line=line) from None


def _header(dependencies: Sequence[str], framework: str | None) -> str:
    """Return the header's lines, which stand last: those of the cell keep their numbers."""
    lines = []
    if dependencies:
        lines.append(f"dependencies = {json.dumps(list(dependencies), ensure_ascii=False)}")
    if framework:
        lines += ["[tool.tpuctl]", f'framework = "{framework}"']
    return "\n".join(["", "# /// script", *(f"# {line}" for line in lines), "# ///", ""]) if lines else ""
