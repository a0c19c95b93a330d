"""The end on a host: sends or receives what the laptop's first record says."""

from __future__ import annotations

import fcntl
import glob
import os
import select
import sys
from collections.abc import Sequence

from tpuctl.copier.frames import Frames, Record
from tpuctl.copier.receiving import Receiver, destination, receive_into
from tpuctl.copier.sending import Item, Sender, list_tree, top_name
from tpuctl.local.confined_folder import ConfinedFolder

READ = 1 << 18
"""Most bytes of a read."""
PIPE = 1 << 20
"""Bytes of a pipe to the SSH server: with the usual 64 KiB one waits for the other all the time."""
SILENCE = 120.0
"""Seconds without a byte after which the sender is lost: sshd notices a laptop that is off after hours."""


class Input:
    """What comes from the laptop; `limit` is the time that it may be silent, in seconds."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.limit: float | None = None

    def read(self) -> bytes:
        """Return the next bytes; none at the end, or after the limit."""
        if not select.select([self._descriptor], [], [], self.limit)[0]:
            return b""
        return os.read(self._descriptor, READ)


def main() -> int:
    """Serve one copy on stdin and stdout."""
    _widen(0)
    _widen(1)
    source = Input(0)
    frames = Frames(source.read, _write)
    try:
        request = frames.receive_record()
        if request["act"] == "receive":  # a file is locked, and the next copy of it waits
            source.limit = SILENCE
        _serve(frames, request)
    except EOFError:
        return 1  # the laptop has gone: what is complete stays, and a part, to resume
    except OSError as error:
        frames.send({"done": True, "fatal": f"{error.filename or ''}: {error.strerror}".lstrip(": ")})
        frames.flush()
    return 0


def _widen(descriptor: int) -> None:
    """Let a pipe hold more, where the system can: Python has had a name for that since 3.10."""
    try:
        fcntl.fcntl(descriptor, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE)
    except OSError:  # a socket, another system, or too many pipes of this user
        pass


def _serve(frames: Frames, request: Record) -> None:
    if request["act"] == "send":
        _send(frames, request["paths"])
    else:
        _receive(frames, os.path.expanduser(request["path"]), is_folder=request["is_folder"])


def _send(frames: Frames, patterns: Sequence[str]) -> None:
    skipped: list[Sequence[str]] = []
    items: list[Item] = []
    missing = []
    for pattern in patterns:
        path = os.path.expanduser(pattern) or "."
        paths = [path] if os.path.lexists(path) else sorted(glob.glob(path))
        missing += [] if paths else [pattern]
        for top in paths:
            items += list_tree(top, top_name(top), lambda *skip: skipped.append(skip))
    frames.send({"missing": missing, "skipped": skipped})
    Sender(frames, items, lambda _: None, _has_answer).send()


def _receive(frames: Frames, path: str, *, is_folder: bool) -> None:
    top, name = destination(path, is_folder=is_folder)
    with ConfinedFolder(top, follows_links=True) as folder:
        receiver = Receiver(frames, folder, lambda _: None, lambda _: None)
        receive_into(receiver, folder, name)


def _has_answer() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    sys.exit(main())
