"""Finds the simulator's process, starts it if it does not run, and stops it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tpuctl.cloud.simulator.locks import exclusive, is_locked
from tpuctl.cloud.simulator.published import PublishedEndpoints, read_endpoints
from tpuctl.errors import ConfigError, HostError
from tpuctl.local.private_folder import make_missing_folders
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder, rotated
from tpuctl.simulator_packages import check_installed

T = TypeVar("T")
START_TIMEOUT = 60.0
BACKOFF = Backoff(0.05)
MAX_LOG_SIZE = 8 << 20
"""Bytes; a log that is larger is rotated at the start."""
STOP_TIMEOUT = 30.0


def running(folder: Path) -> PublishedEndpoints | None:
    """Return the endpoints of the simulator that serves `folder`; None when none runs.

    Raises ConfigError when the folder is another user's.
    """
    files = SimulatorFolder(folder)
    files.check_owner()
    return read_endpoints(files) if is_locked(files.lock) else None


def ensure(folder: Path, *options: str) -> PublishedEndpoints:
    """Return the endpoints of the simulator of `folder`, and start it if it does not run.

    A start passes `options` to `python -m tpuctl.sim`. Raises ConfigError when packages are missing or the
    folder cannot be made, HostError and DeadlineError when the simulator does not start.
    """
    endpoints = running(folder)
    if endpoints:
        return endpoints
    check_installed()
    try:
        make_missing_folders(folder)
    except OSError as error:
        raise ConfigError(
            f"The simulator cannot keep its state in {folder}: {error.strerror}.",
            hint="Name another folder with TPUCTL_STATE.",
        ) from error
    files = SimulatorFolder(folder)
    with exclusive(files.starting_lock):
        return launch(files, options)


def stop(folder: Path) -> bool:
    """Stop the simulator of `folder` and wait for its end; False when none was running.

    One that is being started is stopped once it runs.
    """
    files = SimulatorFolder(folder)
    files.check_owner()
    if not files.starting_lock.exists():
        return stop_started(folder)
    with exclusive(files.starting_lock):
        return stop_started(folder)


def stop_started(folder: Path) -> bool:
    """Stop the simulator as `stop` does, for a caller that holds the starting lock.

    Raises DeadlineError for one that neither serves nor ends.
    """
    files = SimulatorFolder(folder)
    endpoints = started(files)
    if not endpoints:
        return False
    os.kill(endpoints.pid, signal.SIGTERM)
    poll(
        lambda: None if is_locked(files.lock) else True,
        awaiting="the simulator to stop",
        timeout=STOP_TIMEOUT,
        hint=f"End it by hand: kill -9 {endpoints.pid}",
        backoff=Backoff(0.05),
    )
    return True


# Launches a simulator as a process that outlives this one.


def launch(folder: SimulatorFolder, options: tuple[str, ...]) -> PublishedEndpoints:
    """Start a simulator and return its endpoints once all services run; raises HostError, DeadlineError.

    The caller holds the starting lock. One that runs is taken, and one that is left starting waited for.
    """
    other = started(folder)
    if other:
        return other
    folder.endpoints.unlink(missing_ok=True)  # a killed simulator's: the new one locks before it publishes
    process = _spawn(folder, options)

    def ready() -> PublishedEndpoints | None:
        if process.poll() is not None:
            other = started(folder)
            if other:
                return other
            raise HostError(f"The simulator did not start: {_last_line(folder)}.", hint=_hint(folder))
        endpoints = read_endpoints(folder)  # checking the lock instead could keep the new process from it
        return endpoints if endpoints and endpoints.pid == process.pid else None

    try:
        return _poll(ready, "start", folder)
    finally:
        # The child runs on by design; without a return code Python would warn about it.
        process.returncode = process.returncode or 0


def started(folder: SimulatorFolder) -> PublishedEndpoints | None:
    """Return the endpoints of the simulator that has the folder, once it serves; None where none has it.

    Raises DeadlineError for one that neither serves nor ends.
    """

    def settled() -> tuple[PublishedEndpoints | None] | None:
        if not is_locked(folder.lock):
            return (None,)
        endpoints = read_endpoints(folder)
        return (endpoints,) if endpoints else None

    (endpoints,) = _poll(settled, "start or to end", folder)
    return endpoints


def _poll(check: Callable[[], T | None], change: str, folder: SimulatorFolder) -> T:
    awaiting = f"the simulator to {change}"
    return poll(check, awaiting=awaiting, timeout=START_TIMEOUT, hint=_hint(folder), backoff=BACKOFF)


def _hint(folder: SimulatorFolder) -> str:
    return f"Its log is {folder.log}."


def _spawn(folder: SimulatorFolder, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tpuctl.sim", f"--folder={folder.path}", *options]
    with open(_open_log(folder), "ab") as stream:
        return subprocess.Popen(
            command,
            env={
                **os.environ,
                "LC_ALL": "C.UTF-8",
            },  # see config/turkish_locale.py: too late in its own process
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def _open_log(folder: SimulatorFolder) -> int:
    """Return a descriptor of the log, which only this user can read; rotates a large one."""
    if folder.log.exists() and folder.log.stat().st_size > MAX_LOG_SIZE:
        folder.log.replace(rotated(folder.log))
    return os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _last_line(folder: SimulatorFolder) -> str:
    lines = folder.log.read_text(errors="replace").strip().splitlines()
    return lines[-1].rstrip(".") if lines else "it wrote no message"
