"""A pytest plugin: a test that leaves the process of a simulator behind fails by its name.

A command or a client without the fixture `simulator` starts one, which nobody stops. Without the fixture
`home`, too, it would be the developer's own.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.cloud import simulator
from tpuctl.polling import Backoff, poll

STATE = "TPUCTL_STATE"


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
    """Return whether another process serves a folder; it is killed."""
    endpoints = simulator.running(folder)
    if endpoints is None or endpoints.pid == os.getpid():
        return False
    os.kill(endpoints.pid, signal.SIGKILL)
    poll(
        lambda: simulator.running(folder) is None or None,
        awaiting="its end",
        timeout=60,
        backoff=Backoff(0.01, 0.1),
    )
    return True
