"""Copies files between this machine and workers, to or from all of them at once.

- Copies bytes between two descriptors and a stream to a host, as OpenSSH wants of a proxy command.
- Reads the paths of a copy: `file`, `NAME:path`, `NAME@3:path`, and `:path` for the only TPU.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import resources
from io import BufferedReader
from typing import TYPE_CHECKING

from tpuctl.copier.receiving import Receiver, destination
from tpuctl.copier.sending import (
    LEFT_OUT,
    PIECE,
    Incoming,
    Item,
    StoppedError,
    line,
    lines,
    list_tree,
    send,
    top_name,
)
from tpuctl.display import Record
from tpuctl.errors import HostError, InterruptedByUser, StateError, UsageError
from tpuctl.flows.remote.targets import HostName, Hosts, parse_host_name
from tpuctl.local.confined_folder import ConfinedFolder, UnsafeNameError, local_parts
from tpuctl.parallel import Result, fanout

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import ByteStream, RemoteProcess, Ssh


CHUNK = 1 << 16
PATIENCE = 10.0
"""Seconds that the host has to answer after the end of the source."""


def relay(stream: ByteStream, source: int, sink: int) -> None:
    """Copy both ways until the host closes the stream, or the sink's reader has gone; closes the stream.

    The end of the source is passed on; a host that says nothing afterwards is left. Raises OSError when the
    stream is lost.
    """
    stream.settimeout(PATIENCE)
    source_ended = threading.Event()
    sender = threading.Thread(target=_send_all, args=(source, stream, source_ended), daemon=True)
    sender.start()
    try:
        while data := _receive(stream, source_ended):
            _write(sink, data)
    except BrokenPipeError:
        pass
    finally:
        stream.close()


def _receive(stream: ByteStream, source_ended: threading.Event) -> bytes:
    while True:
        try:
            return stream.recv(CHUNK)
        except TimeoutError:
            if source_ended.is_set():
                return b""


def _send_all(source: int, stream: ByteStream, source_ended: threading.Event) -> None:
    with suppress(OSError):  # a stream that is lost ends the other direction, too
        while data := os.read(source, CHUNK):
            _send(stream, data)
        stream.shutdown(socket.SHUT_WR)
    source_ended.set()


def _send(stream: ByteStream, data: bytes) -> None:
    while data:
        with suppress(TimeoutError):  # nothing was sent: the host reads slowly
            data = data[stream.send(data) :]


def _write(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]


MAGIC = re.compile(r"[*?[]")
"""What makes a path on hosts stand for several."""


@dataclass(frozen=True)
class RemotePath:
    """A path on workers of a node, relative to the home folder of the login."""

    host: HostName
    path: str


@dataclass(frozen=True)
class CopyRequest:
    """What is copied where: from this machine to hosts, or from hosts to this machine."""

    host: HostName
    is_upload: bool
    sources: tuple[str, ...]
    destination: str

    @property
    def is_folder(self) -> bool:
        """Whether the destination is a folder by what was typed."""
        last = self.destination.rpartition("/")[2]
        contents = any(not top_name(source) for source in self.sources)
        wildcards = not self.is_upload and any(map(MAGIC.search, self.sources))
        return contents or wildcards or len(self.sources) > 1 or last in ("", ".", "..", "~")


def parse_path(text: str) -> RemotePath | str:
    """Return a path on hosts, or one on this machine; raises UsageError for a URI.

    As for scp, a path on this machine whose name has a colon is written `./a:b`.
    """
    name, colon, path = text.partition(":")
    if not colon or "/" in name:
        return text
    if path.startswith("//"):
        raise UsageError(
            f"{text} is a URI, and cp copies between this machine and the hosts of a TPU.",
            hint=f"Copy it there: tpuctl exec -- gcloud storage cp -r {text} .",
        )
    if not name or name.startswith("@"):
        return RemotePath(HostName("", parse_host_name(f"_{name}").workers), path)
    return RemotePath(parse_host_name(name), path)


def parse_copy(sources: Sequence[str], destination: str) -> CopyRequest:
    """Return what is copied where; raises UsageError unless one side is a TPU's, and the other is here."""
    target = parse_path(destination)
    places = [parse_path(source) for source in sources]
    remote = [place for place in places if isinstance(place, RemotePath)]
    if isinstance(target, RemotePath):
        if remote:
            raise UsageError(
                "Both sides are on hosts.", hint="Copy to this machine first, then from here to the hosts."
            )
        return CopyRequest(target.host, True, tuple(map(str, places)), target.path)
    if not remote:
        raise UsageError(
            "No path is on a TPU.", hint="Write NAME:PATH for one on its hosts, or :PATH for your only TPU."
        )
    if len(remote) < len(places) or len({place.host for place in remote}) > 1:
        raise UsageError("The sources are on several machines.", hint="Copy from one at a time.")
    return CopyRequest(remote[0].host, False, tuple(place.path for place in remote), target)


MODULES = (
    "local/__init__",
    "local/confined_folder",
    "copier/__init__",
    "copier/sending",
    "copier/receiving",
    "copier/host",
)
"""The program on a host, each module after those that it imports."""
START = """
import json, os, sys, types
size, data = int(sys.argv[1]), b""
while len(data) < size:
    piece = os.read(0, size - len(data))
    if not piece:
        sys.exit(1)
    data += piece
modules, request = json.loads(data)
for name, source in modules:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(module.main(request))
"""
"""Runs the program from stdin: it needs no file on the host, whose disk may be full."""
WINDOW = 1 << 22
"""Bytes of a download that a host may send before they are written."""
SILENCE = 30.0
"""Seconds without a byte of a download after which a host that is up is lost all the same."""
GRACE = 5.0
"""Seconds that a program which has closed its output has to end."""
MALFORMED = (
    LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, tarfile.TarError,
)  # fmt: skip
"""What lines or an archive of another form than ours cause."""
AGAIN = "Run the same command again: what is complete is not sent again."
STOPPED = "See what is there: tpuctl exec -- 'df -h . && ls'\n" + AGAIN

Progress = Callable[[int, int, int], None]
"""Takes a worker, bytes that it has now, and the bytes of all its files."""


@dataclass(frozen=True)
class CopyResult(Record):
    """What became of the files of one worker."""

    worker: int
    files: int
    bytes: int
    kept: int
    """Files that were there already, with the same size, time and mode."""
    left_out: tuple[tuple[str, str], ...]
    """Files that are not there, each with the reason."""


def copy(ssh: Ssh, hosts: Hosts, request: CopyRequest, report: Progress) -> list[Result[int, CopyResult]]:
    """Copy to or from every worker, many at once, and return one result a worker.

    Raises UsageError for a source that is missing on this machine, and InterruptedByUser.
    """
    try:
        return _copy(ssh, hosts, request, report)
    except KeyboardInterrupt:
        raise InterruptedByUser("Interrupted: what is complete stays.", hint=AGAIN) from None


def _copy(ssh: Ssh, hosts: Hosts, request: CopyRequest, report: Progress) -> list[Result[int, CopyResult]]:
    items = list_sources(request.sources) if request.is_upload else []
    many = len(hosts.workers) > 1

    def work(worker: int) -> CopyResult:
        progress = partial(report, worker)
        if request.is_upload:
            asked = {"path": request.destination, "is_folder": request.is_folder}
            with _program(ssh, hosts, worker, asked) as process:
                return _upload(worker, process, items, progress)
        target = os.path.join(request.destination, f"worker-{worker}") if many else request.destination
        with _program(ssh, hosts, worker, {"paths": request.sources}) as process:
            folder, name = destination(target, is_folder=many or request.is_folder)
            with ConfinedFolder(folder) as confined:
                receiver = Receiver(confined, name, progress, _refusal(request.sources))
                return _download(worker, process, receiver)

    return fanout(work, hosts.workers)


def list_sources(sources: Sequence[str]) -> list[Item]:
    """Return what is copied from this machine, and what is left out; raises UsageError."""
    for source in sources:
        if not os.path.lexists(source):
            raise UsageError(f"There is no {source} on this machine.", hint="Files of a TPU: NAME:PATH")
    return [item for source in sources for item in list_tree(source, top_name(source))]


@contextmanager
def _program(ssh: Ssh, hosts: Hosts, worker: int, asked: Mapping[str, object]) -> Iterator[RemoteProcess]:
    """Start the program on a worker; what fails becomes a HostError or StateError."""
    name = f"worker {worker} of '{hosts.node.name}'"
    program = json.dumps([program_sources(), asked]).encode()
    with ssh.connect(hosts.node, worker, hosts.host_key(worker)) as session:
        process = session.start(["python3", "-I", "-S", "-c", START, str(len(program))], WINDOW)
        try:
            process.write(program)
            yield process
        except (EOFError, HostError) as error:
            raise _ended(name, process) from error
        except StoppedError as error:
            raise StateError(f"{name}: {error}; what was complete by then stays.", hint=STOPPED) from error
        except OSError as error:
            text = ": ".join(str(part) for part in (error.filename, error.strerror) if part)
            raise StateError(f"this machine: {text}; what was complete by then stays.", hint=AGAIN) from error
        except MALFORMED as error:
            raise HostError(f"{name}: it does not speak our protocol: {error}.") from error
        finally:
            process.close()


def _ended(name: str, process: RemoteProcess) -> HostError:
    """Return the error of a program that ended too soon, or has closed its output and does not end."""
    timer = threading.Timer(GRACE, process.close)
    timer.start()
    text = b""
    try:
        with suppress(HostError):
            while data := process.read_errors():
                text = (text + data)[-4096:]
        code = process.exit_code()
    except HostError as error:
        return HostError(error.message, hint=AGAIN)
    finally:
        timer.cancel()
    if code == 127:
        return HostError(f"{name}: it has no python3, which a copy needs.", hint="Use scp: tpuctl ssh-config")
    last = text.decode(errors="replace").strip().rpartition("\n")[2]
    return HostError(f"{name}: the copy ended with exit code {code}: {last or 'without a message'}.")


def _upload(
    worker: int, process: RemoteProcess, items: Sequence[Item], progress: Callable[[int, int], None]
) -> CopyResult:
    stream = BufferedReader(Incoming(process.read), PIECE)
    left_out = [(words[1], words[2]) for _, words in items if words[0] == LEFT_OUT]
    with suppress(HostError):  # the host's next words say why, or the next read raises it again
        send([item for item in items if item[1][0] != LEFT_OUT], stream, process, progress)
        process.end_input()
    for kind, *words in lines(stream):
        if kind == "done":
            files, size, kept = map(int, words)
            return CopyResult(worker, files, size, kept, tuple(left_out))
        left_out.append((str(words[0]), str(words[1])))
    raise AssertionError


def _download(worker: int, process: RemoteProcess, receiver: Receiver) -> CopyResult:
    stream = BufferedReader(Incoming(lambda: process.read(SILENCE)), PIECE)
    process.write(line("go") + receiver.choose(lines(stream)))
    receiver.receive(stream)
    return CopyResult(worker, receiver.files, receiver.bytes, receiver.kept, tuple(receiver.left_out))


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


@cache
def program_sources() -> list[tuple[str, str]]:
    """Return the names and texts of the modules that run on a host, as the start reads them."""
    folder = resources.files("tpuctl")
    names = [f"tpuctl.{module.removesuffix('/__init__').replace('/', '.')}" for module in MODULES]
    texts = [folder.joinpath(f"{module}.py").read_text() for module in MODULES]
    return [("tpuctl", ""), *zip(names, texts, strict=True)]
