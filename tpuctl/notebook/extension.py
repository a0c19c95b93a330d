"""Loads the magics into an IPython: `%load_ext tpuctl`."""

from __future__ import annotations

import atexit
from typing import Any

from tpuctl.notebook.magics import Magics

NAME = "tpu"


def load(shell: Any) -> None:
    """Add `%%tpu` and `%tpu` to an IPython."""
    magics = Magics()
    atexit.register(magics.close)
    shell.register_magic_function(magics.run_cell, "cell", NAME)
    shell.register_magic_function(magics.show_status, "line", NAME)


def unload(shell: Any) -> None:
    """Remove them, and close their client."""
    function = shell.magics_manager.magics["cell"].pop(NAME, None)
    shell.magics_manager.magics["line"].pop(NAME, None)
    magics = getattr(function, "__self__", None)
    if isinstance(magics, Magics):
        atexit.unregister(magics.close)
        magics.close()
