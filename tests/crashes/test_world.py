"""The world of the crash tests: what it replaces is back when it ends."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crashes.world import CrashWorld
from tests.forks.imports import command_modules


def test_no_module_of_a_command_is_imported_first_in_a_world_and_keeps_its_time(tmp_path: Path) -> None:
    """Many have `sleep: Sleep = time.sleep`, which is read when the module is imported."""
    with CrashWorld(tmp_path):
        assert not set(command_modules()) - set(sys.modules)
