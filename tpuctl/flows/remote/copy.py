"""Copies files between this machine and workers, to or from all of them at once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import TYPE_CHECKING

from tpuctl.copier.frames import Frames, ProtocolError, Record
from tpuctl.copier.receiving import Receiver, destination, receive_into
from tpuctl.copier.sending import Item, Sender, list_tree, top_name
from tpuctl.errors import HostError, InterruptedByUser, StateError, UsageError
from tpuctl.flows.remote.copy_paths import CopyRequest
from tpuctl.flows.remote.targets import Hosts
from tpuctl.local.confined_folder import ConfinedFolder
from tpuctl.local.object_names import UnsafeNameError, local_parts
from tpuctl.parallel import Result, fanout

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import RemoteProcess, Ssh

MODULES = (
    "local/__init__", "local/confined_folder", "copier/__init__", "copier/frames", "copier/sending",
    "copier/receiving", "copier/host",
)  # fmt: skip
"""The program on a host, each module after those that it imports."""
START = """
import json, os, sys, types
size, data = int(sys.argv[1]), b""
while len(data) < size:
    piece = os.read(0, size - len(data))
    if not piece:
        sys.exit(1)
    data += piece
for name, source in json.loads(data):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(module.main())
"""
"""Runs the program from stdin: it needs no file on the host, whose disk may be full."""
WINDOW = 1 << 22
"""Bytes of a download that a host may send before they are written."""

AGAIN = "Run the same command again: it resumes, and what is complete is not sent again."

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What a record of another form than ours causes."""

Progress = Callable[[int, int, int], None]
"""Takes a worker, bytes that it has now, and the bytes of all its files; 0 where they are not known yet."""


@dataclass(frozen=True)
class Copied:
    """What became of the files of one worker."""

    files: int
    bytes: int
    kept: int
    """Files that were there already, with the same content."""
    left_out: Sequence[tuple[str, str]]
    """Files that are not there, each with the reason."""


def copy(ssh: Ssh, hosts: Hosts, request: CopyRequest, report: Progress) -> list[Result[int, Copied]]:
    """Copy to or from every worker at once, and return one result a worker.

    Raises UsageError for a source that is missing on this machine, and InterruptedByUser.
    """
    try:
        return _copy(ssh, hosts, request, report)
    except KeyboardInterrupt:
        raise InterruptedByUser("Interrupted: what is complete stays.", hint=AGAIN) from None


def _copy(ssh: Ssh, hosts: Hosts, request: CopyRequest, report: Progress) -> list[Result[int, Copied]]:
    if request.is_upload:
        items, skipped = list_sources(request.sources)

        def upload(worker: int) -> Copied:
            with _program(ssh, hosts, worker) as connection:
                return _upload(connection, request, items, skipped, report)

        return fanout(upload, hosts.workers, len(hosts.workers))
    many = len(hosts.workers) > 1

    def download(worker: int) -> Copied:
        target = os.path.join(request.destination, f"worker-{worker}") if many else request.destination
        with _program(ssh, hosts, worker) as connection:
            return _download(connection, request, target, is_folder=many or request.is_folder, report=report)

    return fanout(download, hosts.workers, len(hosts.workers))


def list_sources(sources: Sequence[str]) -> tuple[list[Item], list[tuple[str, str]]]:
    """Return what is copied from this machine, and what is left out with the reasons; raises UsageError."""
    items: list[Item] = []
    skipped: list[tuple[str, str]] = []
    for source in sources:
        if not os.path.lexists(source):
            raise UsageError(f"There is no {source} on this machine.", hint="Files of a TPU: NAME:PATH")
        items += list_tree(source, top_name(source), lambda path, why: skipped.append((path, why)))
    return items, skipped


@dataclass(frozen=True)
class _Connection:
    """The program on a worker."""

    worker: int
    name: str
    process: RemoteProcess
    frames: Frames


@contextmanager
def _program(ssh: Ssh, hosts: Hosts, worker: int) -> Iterator[_Connection]:
    """Start the program on a worker; its errors become a HostError or StateError."""
    program = program_source()
    name = f"worker {worker} of '{hosts.node.name}'"
    with ssh.connect(hosts.node, worker, hosts.host_key(worker)) as session:
        process = session.start(["python3", "-I", "-S", "-c", START, str(len(program))], WINDOW)
        errors = _Errors(process)
        try:
            process.write(program)
            yield _Connection(worker, name, process, Frames(process.read, process.write))
        except (EOFError, HostError) as error:
            raise _ended(name, process, errors.text()) from error
        except ProtocolError as error:
            raise HostError(f"{name}: {error}.") from error
        except MALFORMED as error:
            raise HostError(f"{name}: the other end does not speak our protocol.") from error
        finally:
            process.close()


class _Errors:
    """The end of what the program writes to stderr, read meanwhile."""

    def __init__(self, process: RemoteProcess) -> None:
        self._text = b""
        self._thread = threading.Thread(target=self._read, args=[process], daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return the last line, once the program has ended."""
        self._thread.join(5)
        return self._text.decode(errors="replace").strip().rpartition("\n")[2]

    def _read(self, process: RemoteProcess) -> None:
        with suppress(HostError):
            while data := process.read_errors():
                self._text = (self._text + data)[-4096:]


def _ended(name: str, process: RemoteProcess, text: str) -> HostError:
    """Return the error of a program that ended too soon."""
    try:
        code = process.exit_code()
    except HostError as error:
        return HostError(error.message, hint=AGAIN)
    if code == 127:
        return HostError(f"{name}: it has no python3, which a copy needs.", hint="Use scp: tpuctl ssh-config")
    return HostError(f"{name}: the copy ended with exit code {code}: {text or 'without a message'}.")


def _upload(
    connection: _Connection, request: CopyRequest, items: list[Item], skipped: Sequence[tuple[str, str]],
    report: Progress,
) -> Copied:  # fmt: skip
    frames = connection.frames
    counter = _Counter(connection.worker, sum(entry["size"] for _, entry in items), report)
    frames.send({"act": "receive", "path": request.destination, "is_folder": request.is_folder})
    sender = Sender(frames, items, counter.add, lambda: connection.process.has_output)
    return _copied(connection.name, sender.send(), skipped)


def _download(
    connection: _Connection, request: CopyRequest, target: str, *, is_folder: bool, report: Progress
) -> Copied:
    frames = connection.frames
    frames.send({"act": "send", "paths": list(request.sources)})
    frames.flush()
    head = frames.receive_record()
    if head.get("fatal"):
        raise StateError(f"{connection.name}: {head['fatal']}.")
    if head["missing"]:
        raise StateError(
            f"{connection.name} has no {head['missing'][0]}.",
            hint="Paths are relative to the home folder there; see it: tpuctl exec -- ls",
        )
    counter = _Counter(connection.worker, 0, report)
    try:
        top, name = destination(target, is_folder=is_folder)
        with ConfinedFolder(top) as folder:
            receiver = Receiver(frames, folder, _refusal(request.sources), counter.add)
            result = receive_into(receiver, folder, name)
    except OSError as error:
        raise StateError(f"{error.filename or target} cannot be written: {error.strerror}.") from error
    return _copied("this machine", result, [(str(path), str(why)) for path, why in head["skipped"]])


def _refusal(sources: Sequence[str]) -> Callable[[Sequence[str]], str | None]:
    """Return what says why a name of a host must not be written here.

    The names of tops are those that were requested: else a host could add `.bashrc` (CVE-2019-6111 of scp).
    """
    patterns = [top_name(source) for source in sources]

    def is_requested(top: str) -> bool:
        return any(
            fnmatchcase(top, pattern or "*") and (pattern[:1] == "." or top[0] != ".") for pattern in patterns
        )

    def refuse(parts: Sequence[str]) -> str | None:
        if not is_requested(parts[0]):
            return "was not requested"
        try:
            local_parts("/".join(parts), may_be_hidden=True)
        except UnsafeNameError as error:
            return str(error)
        return None

    return refuse


class _Counter:
    """Adds up the bytes of one worker."""

    def __init__(self, worker: int, total: int, report: Progress) -> None:
        self._worker, self._total, self._report = worker, total, report
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count bytes."""
        self._bytes += size
        self._report(self._worker, self._bytes, self._total)


def _copied(place: str, result: Record, skipped: Sequence[tuple[str, str]]) -> Copied:
    """Return what became of the files; raises StateError for a full disk."""
    if result.get("fatal"):
        raise StateError(
            f"{place}: {result['fatal']}; what was complete by then stays.",
            hint="Make room, then run the same command again.",
        )
    failed = [(str(path), str(why)) for path, why in result["failed"]]
    return Copied(int(result["files"]), int(result["bytes"]), int(result["kept"]), [*skipped, *failed])


def program_source() -> bytes:
    """Return the program for a host, as the start reads it."""
    folder = resources.files("tpuctl")
    sources = [["tpuctl", ""]]
    for module in MODULES:
        name = f"tpuctl.{module.removesuffix('/__init__').replace('/', '.')}"
        sources.append([name, folder.joinpath(f"{module}.py").read_text()])
    return json.dumps(sources).encode()
