"""Fixtures: the golden bucket on a simulator, once for all tests of a file, and who asks about it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import FOREIGN
from tests.golden.bucket.restored import ENVIRONMENT, LAPTOP, Restored
from tests.golden.bucket.shown_time import ShownTime
from tests.running_simulator import CommandResult, command_line
from tpuctl.testing import Simulator


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the laptop's files."""
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def restored(place: Path) -> Iterator[Restored]:
    """The golden bucket and its TPUs; time stands still."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(FOREIGN):
                patch.delenv(name)
        home, work = place / "home", place / "work"
        home.mkdir()
        work.mkdir()
        own = {"HOME": home, "TPUCTL_STATE": place / "state", "COLUMNS": "100"}
        for name, value in {**ENVIRONMENT, **own}.items():
            patch.setenv(name, str(value))
        patch.setattr(platform, "node", lambda: LAPTOP)
        patch.chdir(work)
        with Simulator(place / "state" / "sim") as sim:
            yield Restored(sim, ShownTime(patch), home)


@pytest.fixture
def tpuctl(restored: Restored, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """The command line as a function, where the golden bucket is."""
    return command_line(capsys)
