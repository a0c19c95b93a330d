"""The end on a host: sends or receives what the laptop's first record says."""

from __future__ import annotations

import glob
import os
import select
import sys
from collections.abc import Sequence

from tpuctl.copier.frames import Frames, Record
from tpuctl.copier.receiving import Receiver, destination, receive_into
from tpuctl.copier.sending import Item, Sender, list_tree, top_name
from tpuctl.local.confined_folder import ConfinedFolder

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
        return os.read(self._descriptor, 1 << 17)


def main() -> int:
    """Serve one copy on stdin and stdout."""
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
