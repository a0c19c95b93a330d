"""Holds a copy in its middle: on any machine, fast or busy, it is there when a test interrupts it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuctl.cloud.ssh.process import RemoteProcess

MIDDLE = 4_000_000
"""Bytes of each worker after which its copy is held: more than windows and buffers have."""


def hold(release: Path, patch: pytest.MonkeyPatch) -> None:
    """Have each worker's bytes, either way, stop in the middle until there is a file `release`."""
    passed: dict[RemoteProcess, int] = {}
    read, write = RemoteProcess.read, RemoteProcess.write

    def held(process: RemoteProcess, act: Callable[[], bytes | None], size: int = 0) -> bytes:
        while passed.get(process, 0) > MIDDLE and not release.exists():
            time.sleep(0.01)
        content = act() or b""
        passed[process] = passed.get(process, 0) + (size or len(content))
        return content

    patch.setattr(RemoteProcess, "read", lambda self, *patience: held(self, lambda: read(self, *patience)))
    patch.setattr(
        RemoteProcess, "write", lambda self, data: held(self, lambda: write(self, data), len(data)) and None
    )


def holding_program(release: Path) -> str:
    """Return the program of a tpuctl whose copies are held."""
    return (
        f"import pathlib, runpy, sys; sys.path.insert(0, {str(ROOT)!r}); import pytest;"
        "from tests.cli.remote.held_copy import hold;"
        f"hold(pathlib.Path({str(release)!r}), pytest.MonkeyPatch());"
        "sys.argv = ['tpuctl', *sys.argv[1:]]; runpy.run_module('tpuctl', run_name='__main__')"
    )
