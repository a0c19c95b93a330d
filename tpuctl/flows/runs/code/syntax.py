"""Finds a script that no Python can run before it is sent to one."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Sequence
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.imports import is_parsed
from tpuctl.flows.runs.code.project_files import read_source
from tpuctl.job_header import Header


def check_syntax(files: Sequence[Path], header: Header) -> list[str]:
    """Compile Python files and return notes on those that only another Python could compile, if any can.

    Raises UsageError with the line of an error, unless the header excludes this Python.
    """
    notes, version = [], platform.python_version()
    for file in files:
        source = read_source(file)
        if not is_parsed(source):
            notes.append(
                f"{file} is too long, or in an encoding that takes too long, to be checked for syntax errors."
                " What it imports is not looked for: pass it with --include."
            )
            continue
        try:
            error = _syntax_error(source, file)
        except (RecursionError, MemoryError):  # the compiler's own limits
            notes.append(f"{file} is nested too deep to be checked for syntax errors.")
            continue
        if error and header.accepts_python(version):
            raise UsageError(f"{_sentence(file, error)}.", hint=_HINT, file=str(file), line=error.lineno)
        if error:
            pythons = f"it asks for Python {header.asked_python}, and this is {version}"
            notes.append(f"{_sentence(file, error)}. The run is submitted anyway: {pythons}.")
    return notes


_HINT = (
    f"Nothing was sent. This is Python {platform.python_version()}; a script for a newer one says so in its "
    'header, such as requires-python = ">=3.13".'
)


def _syntax_error(source: bytes, file: Path) -> SyntaxError | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the script are for its own run
        try:
            compile(source, str(file), "exec", dont_inherit=True)
        except SyntaxError as error:
            return error
        except ValueError as error:  # a null byte, before Python 3.12
            return SyntaxError(str(error))
    return None


def _sentence(file: Path, error: SyntaxError) -> str:
    line = f"line {error.lineno}: " if error.lineno else ""
    text = f": {error.text.strip()}" if error.text and error.text.strip() else ""
    return f"{file} has a syntax error, {line}{error.msg}{text}"
