"""A pytest plugin: a test that leaves the process of a simulator behind fails by its name.

A command or a client without the fixture `simulator` starts one, which nobody stops. Without the fixture
`home`, too, it would be the developer's own. Where the run itself is killed, its simulators are ended by
`python -m tests.isolation.left_simulators FOLDER...`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuctl.cloud import simulator
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder

STATE = "TPUCTL_STATE"
BACKOFF = Backoff(0.01, 0.1)
WATCH = 'read -r _; exec "$@"'
"""A script of sh whose standard input ends with this process."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests without a home of their own a state folder that is not the developer's."""
    folder = tempfile.TemporaryDirectory(prefix="state-", ignore_cleanup_errors=True)
    os.environ[STATE] = folder.name
    config.add_cleanup(folder.cleanup)


@pytest.fixture(scope="session", autouse=True)
def _watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """End the simulators of a run that is killed: all are below its temporary folders."""
    places = (str(tmp_path_factory.getbasetemp()), os.environ[STATE])
    with subprocess.Popen(
        ["/bin/sh", "-c", WATCH, "sh", sys.executable, "-m", __name__, *places],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell:
        yield
        shell.kill()


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
    return {pid for pid, words in _commands() if option in words}


def _commands() -> Iterator[tuple[int, list[bytes]]]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        yield int(file.parent.name), _words(file)


def _words(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def _main(places: list[str]) -> None:
    """Have the simulators below these folders end, with the programs of their hosts."""
    below = [os.fsencode(f"{place}/") for place in places]
    for pid, words in _commands():
        if b"tpuctl.sim" in words and any(place in word for place in below for word in words):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    _main(sys.argv[1:])
