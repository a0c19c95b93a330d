"""Finds the running simulator of this user, or starts one."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tpuctl.cloud.simulator import log as simulator_log
from tpuctl.errors import ConfigError, HostError
from tpuctl.polling import Backoff, poll

START_TIMEOUT = 60.0
LOCK = "simulator.lock"
STARTING = "starting.lock"
HOSTS = "hosts"
ENDPOINTS = "endpoints.json"
SERVERS = ("asyncssh", "aiohttp", "trustme", "grpc_status")
"""What the simulator needs beyond the core: the `sim` extra."""


class Served(msgspec.Struct, frozen=True):
    """endpoints.json: what a running simulator says about itself."""

    pid: int
    project: str
    bucket: str
    tpu_grpc: str
    tpu_rest: str
    storage: str
    proxy: str
    hosts_file: str
    ca_file: str
    egress: str = "pass"
    """`pass`, or `refuse`: what becomes of traffic from hosts to places that are not simulated."""
    environment: dict[str, str] = {}
    """What leads unmodified clients outside of its hosts to it."""
    schema: int = 1


def running(folder: Path) -> Served | None:
    """Return the simulator that serves `folder`, or None: it holds a lock for as long as it lives."""
    return _served(folder) if _locked(folder / LOCK) else None


def ensure(folder: Path, *options: str) -> Served:
    """Return the simulator of `folder`, started when there is none; `options` go to its command line."""
    found = running(folder)
    if found:
        return found
    _check_installed()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"The simulator cannot keep its state in {folder}: {error.strerror}.",
            hint="Name another folder with TPUCTL_STATE.",
        ) from error
    with _exclusive(folder / STARTING):
        return running(folder) or _start(folder, options)


def stop(folder: Path) -> bool:
    """End the simulator of `folder` and wait until it is gone; False when none was running."""
    found = running(folder)
    if not found:
        return False
    os.kill(found.pid, signal.SIGTERM)
    poll(
        lambda: None if _locked(folder / LOCK) else True,
        awaiting="the simulator to stop",
        timeout=30,
        hint=f"End it by hand: kill -9 {found.pid}",
        backoff=Backoff(0.05),
    )
    return True


def end_leftovers(folder: Path) -> int:
    """End the programs that a killed simulator left on the hosts of `folder`; returns how many there were.

    None while a simulator runs: they are its own.
    """
    if not (folder / HOSTS).is_dir():
        return 0
    command = [sys.executable, "-m", "tpuctl.sim.orphan_cleanup", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].rstrip(".")
        raise HostError(
            f"What a killed simulator left running could not be ended: {last}.",
            hint="The next start ends it, too: tpuctl sim start",
        )
    return int(done.stdout)


def reset(folder: Path) -> None:
    """Stop the simulator of `folder`, end what runs on its hosts, and delete everything it keeps."""
    if not folder.is_dir():
        return
    with _exclusive(folder / STARTING):
        stop(folder)
        end_leftovers(folder)
        with _exclusive(folder / LOCK):
            _delete_all_but(folder, {STARTING, LOCK})


def _delete_all_but(folder: Path, kept: set[str]) -> None:
    """The locks stay: somebody may be waiting for one."""
    try:
        for path in folder.iterdir():
            if path.name in kept:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise HostError(
            f"{error.filename} cannot be deleted: {error.strerror}.", hint=f"Delete it by hand: {folder}"
        ) from error


def _served(folder: Path) -> Served | None:
    try:
        return msgspec.json.decode((folder / ENDPOINTS).read_bytes(), type=Served)
    except (OSError, msgspec.DecodeError):
        return None  # it is not ready yet


def _start(folder: Path, options: tuple[str, ...]) -> Served:
    diary = folder / simulator_log.FILE
    (folder / ENDPOINTS).unlink(missing_ok=True)  # of one that was killed: the lock will be held before ours
    command = [sys.executable, "-m", "tpuctl.sim", "--folder", str(folder), *options]
    with open(simulator_log.open_log(folder), "ab") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )

    def ready() -> Served | None:
        if process.poll() is not None:
            raise HostError(f"The simulator did not start: {_last_line(diary)}.", hint=f"Its log is {diary}.")
        found = _served(folder)  # not by its lock: looking takes it for a moment, and it must get it
        return found if found and found.pid == process.pid else None

    try:
        return poll(
            ready,
            awaiting="the simulator to start",
            timeout=START_TIMEOUT,
            hint=f"Its log is {diary}.",
            backoff=Backoff(0.05),
        )
    finally:
        # It outlives this process on purpose; without this Python warns about the child it leaves running.
        process.returncode = process.returncode or 0


def _last_line(diary: Path) -> str:
    lines = diary.read_text(errors="replace").strip().splitlines()
    return lines[-1].rstrip(".") if lines else "it said nothing"


def _check_installed() -> None:
    missing = [name for name in SERVERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"The simulator needs packages that are not installed: {', '.join(missing)}.",
            hint="Install them: pip install 'tpuctl[sim]'",
        )


def _locked(path: Path) -> bool:
    """Tell whether some process holds the lock; the kernel drops it with the process, whatever its end."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # which others who look can hold as well
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
