"""Shows an error in a notebook as on the command line: what happened and what to do, without a traceback."""

from __future__ import annotations

from typing import TypeVar

from tpuctl.errors import TpuctlError
from tpuctl.text import printable

E = TypeVar("E", bound=TpuctlError)
_BOLD_RED, _CYAN, _RESET = "\x1b[1;31m", "\x1b[36m", "\x1b[0m"


def concise(error: E) -> E:
    """Return an error that IPython shows in two lines; other programs see no difference."""
    error._render_traceback_ = lambda: _rendered(error)  # type: ignore[attr-defined]  # IPython's protocol
    return error


def _rendered(error: TpuctlError) -> list[str]:
    text = f"{_BOLD_RED}{type(error).__name__}:{_RESET} {printable.block(error.message)}"
    hint = [f"{_CYAN}Hint:{_RESET} {printable.block(error.hint)}"] if error.hint else []
    return [text, *hint]
