"""Logs the simulator's events in order: requests, transitions, faults, notices.

- Defines an event: a request, a state transition, a fault or a notice.
- Keeps the latest events in memory; older ones are in the simulator's folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tpuctl.simulator_folder import rotated


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event; `tpuctl sim events --json` prints its JSON form."""

    kind: str
    """`request`, `transition`, `fault` or `notice`"""
    what: str
    """The method of a request (`CreateNode`, `objects.get`, `exec`), the new state of a transition, the kind
    of a fault, a notice's text."""
    resource: str
    """Full name of a node or queued resource, BUCKET/OBJECT, or NODE/worker."""
    detail: str = ""
    """Of a fault: its id and the method. Of an SSH request: the user or the command."""
    time: float = 0.0
    """Seconds since 1970 by the simulator's clock."""
    service: str = "tpu"
    """`tpu`, `storage`, `compute`, `billing`, `quotas`, `metadata`, `ssh` or `hosts`"""
    number: int = 0
    """1, 2, 3 ..., also over restarts."""
    body: dict[str, object] | None = None
    """Of a request that changes something: to the Cloud TPU API the request message as JSON, the same
    for gRPC and REST; to Compute Engine and Cloud Storage the JSON that was sent; of an upload the object's
    fields, never its content. Secrets are `***`; of a body that is too large there are size and hash."""


LARGEST = 8 << 20
"""Bytes of a file; then it becomes the older one, and a new one begins."""
TAIL = 64 << 10
MASK = "***"
NAMES = re.compile(r"(secret|passw|token|credential|private.?key|api.?key|access.?key)", re.IGNORECASE)
"""Names of fields, and of items of metadata, whose values are secret."""
NO_SECRETS = frozenset({"pageToken", "rewriteToken", "nextPageToken"})
TEXTS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bya29\.[\w-]|\bhf_\w{20}|\bAIza[\w-]{30}|\bgh[pos]_\w{30}"
)
"""Values that are secret whatever their name: keys and tokens of Google, GitHub and Hugging Face."""
MOST = 10_000
"""Events kept in memory; the oldest go first."""
MOST_BYTES = 16 << 20
"""Bytes of the bodies kept in memory, as JSON."""
LARGEST_BODY = 256 << 10
"""Bytes of one body: metadata of a node may have 512 KiB."""


class Events(deque[Event]):
    """The latest events, oldest first; with a `path`, also in files of bounded size.

    One thread adds; others may copy (`list(events)`) and `find`.
    """

    def __init__(self, clock: Callable[[], float] = time.time, path: Path | None = None) -> None:
        super().__init__()
        self._bytes = 0
        self._clock = clock
        self._store = EventStore(path) if path else None
        self._number = self._store.last_number() if self._store else 0

    def note(
        self,
        kind: str,
        what: str,
        resource: str,
        detail: str = "",
        service: str = "tpu",
        body: Mapping[str, object] | None = None,
    ) -> None:
        """Add an event."""
        self._number += 1
        event = Event(kind, what, resource, detail, self._clock(), service, self._number, _kept(body))
        self.append(event)
        self._bytes += _size(event)
        while len(self) > MOST or self._bytes > MOST_BYTES:
            self._bytes -= _size(self.popleft())
        if self._store:
            self._store.write(event)

    def find(self, **patterns: str) -> list[Event]:
        """Return the events whose fields match these shell patterns: `find(kind="fault", what="stock*")`."""
        return [
            event
            for event in list(self)
            if all(fnmatchcase(str(getattr(event, field)), pattern) for field, pattern in patterns.items())
        ]

    def close(self) -> None:
        """Close the file; what is in memory stays."""
        if self._store:
            self._store.close()
            self._store = None


def _size(event: Event) -> int:
    return len(msgspec.json.encode(event.body)) if event.body else 0


def _kept(body: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return what the log keeps of a body: secrets are masked, and of a large one only its size and hash."""
    if body is None:
        return None
    encoded = msgspec.json.encode(body)
    if len(encoded) <= LARGEST_BODY:
        return {name: masked(value, name) for name, value in body.items()}
    return {"bytes": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}


# Masks what looks like a secret in the body of a request, before the log of events keeps it.


def masked(value: object, name: str = "") -> object:
    """Return a value of JSON with secrets masked; `name` is the field that it is under."""
    if isinstance(value, Mapping):
        # Compute Engine's metadata is a list of {"key": NAME, "value": TEXT}
        key = value.get("key")
        named = {"value": key} if isinstance(key, str) else {}
        return {field: masked(part, named.get(field, str(field))) for field, part in value.items()}
    if isinstance(value, list):
        return [masked(part, name) for part in value]
    if isinstance(value, str) and (TEXTS.search(value) or (NAMES.search(name) and name not in NO_SECRETS)):
        return MASK
    return value


# Stores events on disk: lines of JSON in two files of bounded size, complete after a kill -9.


class EventStore:
    """Writes events to `path`; a full file is renamed, with `.1` at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._open()

    def write(self, event: Event) -> None:
        """Append one event: it is with the kernel when this returns. A full disk loses it."""
        line = self._encoder.encode(event) + b"\n"
        try:
            os.write(self._file, line)
        except OSError:
            return
        self._size += len(line)
        if self._size > LARGEST:
            os.close(self._file)
            self._path.replace(rotated(self._path))
            self._open()

    def last_number(self) -> int:
        """Return the number of the last event written, also by an earlier process; 0 without any."""
        for path in (self._path, rotated(self._path)):
            for line in reversed(_tail(path)):
                try:
                    return msgspec.json.decode(line, type=Event).number
                except msgspec.DecodeError:
                    continue  # cut by a full disk
        return 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and _tail(self._path)[-1:] != [b""]:
            self._size += os.write(self._file, b"\n")  # after half a line


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().split(b"\n")
    except FileNotFoundError:
        return []


__all__ = ["Event", "Events"]
