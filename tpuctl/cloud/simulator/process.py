"""Finds the simulator's process, starts it if it does not run, and stops it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tpuctl.cloud.simulator.launch import launch, started
from tpuctl.cloud.simulator.locks import exclusive, is_locked
from tpuctl.cloud.simulator.published import PublishedEndpoints, read_endpoints
from tpuctl.errors import ConfigError
from tpuctl.local.private_folder import make_missing_folders
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder
from tpuctl.simulator_packages import check_installed

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
