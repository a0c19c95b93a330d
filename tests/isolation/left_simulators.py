"""A pytest plugin: a test that leaves the process of a simulator behind fails by its name.

A command or a client without the fixture `simulator` starts one, which nobody stops. Without the fixture
`home`, too, it would be the developer's own.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tpuctl.cloud import simulator
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder

STATE = "TPUCTL_STATE"
BACKOFF = Backoff(0.01, 0.1)


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests without a home of their own a state folder that is not the developer's."""
    folder = tempfile.TemporaryDirectory(prefix="state-", ignore_cleanup_errors=True)
    os.environ[STATE] = folder.name
    config.add_cleanup(folder.cleanup)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Look after the teardown of all fixtures, which may stop one."""
    own = getattr(item, "funcargs", {}).get("tmp_path")
    places = [Path(os.environ[STATE]), *([own / "state"] if own else [])]
    yield
    left = [place for place in places if _end(place / "sim")]
    if left:
        pytest.fail(f"it left a simulator running in {left[0]}: use the fixture simulator", pytrace=False)


def _end(folder: Path) -> bool:
    """Return whether another process serves a folder, or is about to; it is killed."""
    endpoints = simulator.running(folder)
    pids = ({endpoints.pid} if endpoints else _starting(folder)) - {os.getpid()}
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        poll(
            lambda: simulator.running(folder) is None or None, awaiting="its end", timeout=60, backoff=BACKOFF
        )
    return bool(pids)


def _starting(folder: Path) -> set[int]:
    """Return the simulators of a folder that do not serve yet, on Linux; each has a log already."""
    if not SimulatorFolder(folder).log.exists():
        return set()
    option = f"--folder={folder}".encode()
    return {int(file.parent.name) for file in Path("/proc").glob("[0-9]*/cmdline") if option in _words(file)}


def _words(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []
