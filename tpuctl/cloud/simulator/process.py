"""Finds the simulator's process, starts it if it does not run, and stops it.

- File locks (flock) that the kernel releases when their process ends, however it ends.
- Reads the addresses that a simulator publishes in its folder.
- The client of a running simulator's control server: adds, lists and removes faults.
- Ends the programs of a killed simulator, and deletes a simulator's state.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from tpuctl.errors import ConfigError, DeadlineError, HostError, NotFoundError, StateError, UsageError
from tpuctl.faults import Request, Value
from tpuctl.local.private_folder import make_missing_folders
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder, check_installed, rotated


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock exclusively."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others can check at the same time
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock while the block runs, and wait for it before."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class PublishedEndpoints(msgspec.Struct, frozen=True):
    """The content of endpoints.json, as far as clients use it."""

    pid: int
    project: str
    bucket: str
    tpu_grpc: str
    tpu_rest: str
    storage: str
    proxy: str
    hosts_file: str
    ca_file: str
    billing_rest: str = ""
    quota_rest: str = ""
    compute_rest: str = ""
    iap_relay: str = ""
    """URL of the relay of Identity-Aware Proxy, over plain HTTP: `/v4/connect`."""
    egress: str = "pass"
    """`pass` or `refuse`: the treatment of traffic from hosts to addresses that are not simulated."""
    external_ips: bool = True
    """Whether nodes get the external addresses that they ask for."""
    iam: str = ""
    """The member as whom programs outside its hosts call, if roles are enforced; '' if they are not."""
    default_account: str = "editor"
    """`editor` or `none`: the role of a project's default service account."""
    firewall: str = "open"
    """`open` or `closed`: whether the network `default` has its rule for SSH."""
    python: str = "machine"
    """`machine` or `image`: whose Python hosts run."""
    environment: dict[str, str] = {}
    """Variables that point unmodified clients outside of its hosts to the simulator."""
    schema: int = 1


def read_endpoints(folder: SimulatorFolder) -> PublishedEndpoints | None:
    """Return what the simulator of `folder` publishes; None while it has not started completely."""
    try:
        return msgspec.json.decode(folder.endpoints.read_bytes(), type=PublishedEndpoints)
    except (OSError, msgspec.DecodeError):
        return None


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
            without = f" The next command starts it without {' '.join(options)}." if options else ""
            raise HostError(
                f"The simulator did not start: {_last_line(folder)}.", hint=_hint(folder) + without
            )
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
            },  # see config/files.py: too late in its own process
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


FAULTS = "/v1/faults"
ANSWER_TIMEOUT = 30.0
ERRORS = {400: UsageError, 404: NotFoundError}


class ActiveFault(msgspec.Struct, frozen=True):
    """A fault that the simulator keeps, and its progress."""

    id: str
    kind: str
    options: dict[str, Value]
    state: str
    """`waiting` for its time, `in force`, `over`, or `spent`: its count has been used up."""
    taken: int
    """How often it has fired."""
    left: int | None
    """How often it can still fire; None: without limit."""
    origin: str
    """`command`, or the name of its scenario."""


class _Server(msgspec.Struct, frozen=True):
    """control.json: the address of the control server, and the token that it requires."""

    url: str
    token: str


class _Response(msgspec.Struct, frozen=True):
    """Faults, or the message of an error."""

    faults: list[ActiveFault] = []
    message: str = ""
    hint: str = ""


class ControlClient:
    """A client of the simulator that serves `folder`; raises StateError when it has no control server."""

    def __init__(self, folder: Path) -> None:
        try:
            self._server = msgspec.json.decode(SimulatorFolder(folder).control.read_bytes(), type=_Server)
        except (OSError, msgspec.DecodeError) as error:
            raise StateError(
                "The simulator that runs is of another version.", hint="Stop it: tpuctl sim stop"
            ) from error

    def faults(self) -> list[ActiveFault]:
        """Return every fault that is not over, oldest first."""
        return self._send("GET", FAULTS).faults

    def add(self, requests: Sequence[Request], scenario: str | None = None) -> list[ActiveFault]:
        """Add faults and return them; those of a scenario replace those of an earlier scenario."""
        return self._send("POST", FAULTS, {"faults": requests, "scenario": scenario}).faults

    def remove(self, identifier: str) -> None:
        """Remove one fault; raises NotFoundError."""
        self._send("DELETE", f"{FAULTS}/{quote(identifier, safe='')}")

    def clear(self) -> None:
        """Remove every fault."""
        self._send("DELETE", FAULTS)

    def _send(self, method: str, path: str, content: Mapping[str, object] | None = None) -> _Response:
        body = b"" if content is None else msgspec.json.encode(content)
        connection = http.client.HTTPConnection(urlsplit(self._server.url).netloc, timeout=ANSWER_TIMEOUT)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self._server.token}"})
            with connection.getresponse() as reply:
                response = msgspec.json.decode(reply.read(), type=_Response)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise DeadlineError(
                "The simulator does not answer.", hint="'tpuctl sim status' shows it."
            ) from error
        finally:
            connection.close()
        if reply.status >= 400:
            raise ERRORS.get(reply.status, StateError)(response.message, hint=response.hint)
        return response


def reset(folder: Path) -> None:
    """Stop the simulator of `folder`, end the programs of its hosts, and delete all of its state.

    Raises HostError when programs cannot be ended or files cannot be deleted.
    """
    if not folder.is_dir():
        return
    files = SimulatorFolder(folder)
    with exclusive(files.starting_lock):
        stop_started(folder)
        end_orphans(folder)
        with exclusive(files.lock):
            _delete_all_but(folder, {files.starting_lock, files.lock})


def end_orphans(folder: Path) -> int:
    """End the programs that a killed simulator left running on its hosts, and return their number.

    0 while a simulator runs: the programs are its own. Raises HostError.
    """
    if not SimulatorFolder(folder).hosts.is_dir():
        return 0
    command = [sys.executable, "-m", "tpuctl.sim.orphan_cleanup", str(folder)]
    cleanup = subprocess.run(command, capture_output=True, text=True, check=False)
    if cleanup.returncode:
        reason = (cleanup.stderr.strip().splitlines() or ["no message"])[-1].rstrip(".")
        raise HostError(
            f"The programs that a killed simulator left running could not be ended: {reason}.",
            hint="The next start ends them, too: tpuctl sim start",
        )
    return int(cleanup.stdout)


def _delete_all_but(folder: Path, locks: set[Path]) -> None:
    """The locks stay: another process may be waiting for one."""
    try:
        for path in folder.iterdir():
            if path in locks:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise HostError(
            f"{error.filename} cannot be deleted: {error.strerror}.", hint=f"Delete it by hand: {folder}"
        ) from error
