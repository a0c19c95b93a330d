"""The end on a host: sends or receives what the laptop requests."""

from __future__ import annotations

import errno
import fcntl
import glob
import io
import os
import select
from contextlib import suppress
from typing import Any, Dict, Iterator, Sequence

from tpuctl.copier.receiving import Receiver, destination
from tpuctl.copier.sending import LEFT_OUT, PIECE, Incoming, Item, line, lines, list_tree, send, top_name
from tpuctl.local.confined_folder import ConfinedFolder

PIPE = 1 << 20
"""Bytes of a pipe to the SSH server: with the usual 64 KiB one waits for the other all the time."""
SILENCE = 120.0
"""Seconds without a byte after which the laptop is lost: sshd notices one that is off after hours."""


class Output:
    """What goes to the laptop."""

    def write(self, data: bytes) -> None:
        """Send all bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def main(request: Dict[str, Any]) -> int:
    """Serve one copy on stdin and stdout, and return the exit code: 1 once the laptop has gone."""
    for descriptor in (0, 1):
        with suppress(OSError):  # a socket, another system, or too many pipes of this user
            fcntl.fcntl(descriptor, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE)  # Python 3.10 has the name
    stream, out = io.BufferedReader(Incoming(_read), PIECE), Output()
    try:
        if "paths" in request:
            send(_sources(request["paths"]), stream, out, lambda *_: None)
            return 0
        top, name = destination(os.path.expanduser(request["path"]), is_folder=request["is_folder"])
        with ConfinedFolder(top, follows_links=True) as folder:
            receiver = Receiver(folder, name)
            out.write(line("go") + receiver.choose(lines(stream)))
            receiver.receive(stream)
        left_out = [line(LEFT_OUT, *pair) for pair in receiver.left_out]
        out.write(b"".join(left_out) + line("done", receiver.files, receiver.bytes, receiver.kept))
    except (EOFError, BrokenPipeError):
        return 1
    except OSError as error:
        out.write(line("error", ": ".join(str(part) for part in (error.filename, error.strerror) if part)))
    return 0


def _read() -> bytes:
    """Return the next bytes; none at the end, or after a long silence."""
    return os.read(0, PIECE) if select.select([0], [], [], SILENCE)[0] else b""


def _sources(patterns: Sequence[str]) -> Iterator[Item]:
    for pattern in patterns:
        path = os.path.expanduser(pattern) or "."
        paths = [path] if os.path.lexists(path) else sorted(glob.glob(path))
        if not paths:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), pattern)
        for top in paths:
            yield from list_tree(top, top_name(top))
