"""A bucket in memory with a clock of its own, and a hook before each request: other actors act there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from tpuctl import clock
from tpuctl.cloud.downloads import ObjectStream
from tpuctl.cloud.storage import Object
from tpuctl.errors import ConflictError, NotFoundError
from tpuctl.object_content import Content
from tpuctl.sim.gcs.rules import compile_glob

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Stored:
    data: bytes
    generation: int
    updated: datetime
    content_type: str = ""


class MemoryBucket:
    """What of `Bucket` the records of a run need."""

    name = "b"

    def __init__(self) -> None:
        self.time = START
        self.meanwhile: Callable[[], None] = lambda: None
        """Called before each request."""
        self.history: list[tuple[str, bytes]] = []
        """Every write, in order."""
        self._objects: dict[str, Stored] = {}
        self._generation = 0
        self.bytes_read = 0
        """Of ranges of objects."""

    def requests(self, work: Callable[[], object]) -> int:
        """Return how many requests some work sends."""
        sent = count()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self, "meanwhile", lambda: next(sent))
            work()
        return next(sent)

    def pass_time(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self.time

    def find(self, name: str, most: int = 0) -> bytes | None:
        self.meanwhile()
        return self._objects[name].data if name in self._objects else None

    def get(self, name: str) -> bytes | None:
        """Return an object's content, at no moment for others."""
        return self._objects[name].data if name in self._objects else None

    def time_of(self, name: str) -> datetime:
        """Return when an object was written."""
        return self._objects[name].updated

    def read(self, name: str, most: int = 0) -> bytes:
        data = self.find(name)
        if data is None:
            raise NotFoundError(name)
        return data

    def read_range(self, item: Object, start: int, end: int) -> bytes:
        self.meanwhile()
        self.bytes_read += end - start
        return self._objects[item.name].data[start:end]

    def read_listed(self, item: Object, most: int = 0) -> bytes:
        return self.read(item.name)

    def stream(self, item: Object, part: int = 1 << 20) -> ObjectStream:
        return ObjectStream(lambda start, end: self.read_range(item, start, end), item.size, part)

    def stat(self, name: str) -> Object | None:
        self.meanwhile()
        return self._object(name) if name in self._objects else None

    def objects(
        self, prefix: str, *, most: int | None = None, start: str = "", glob: str = "", more: str = ""
    ) -> list[Object]:
        self.meanwhile()
        pattern = compile_glob(glob) if glob else re.compile(".*", re.DOTALL)
        names = (name for name in sorted(self._objects) if name.startswith(prefix) and name >= start)
        return [self._object(name) for name in names if pattern.fullmatch(name)][:most]

    def folders(self, prefix: str) -> list[str]:
        self.meanwhile()
        below = (name.removeprefix(prefix) for name in self._objects if name.startswith(prefix))
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def create(self, name: str, data: bytes, content_type: str = "", metadata: object = None) -> None:
        self.meanwhile()
        if name in self._objects:
            if self._objects[name].data != data:
                raise ConflictError(f"{name} exists already.")
            return  # as the real one: an answer that was lost is no conflict
        self.put(name, data, content_type)

    def replace(self, item: Object, data: bytes, content_type: str = "", metadata: object = None) -> None:
        self.meanwhile()
        stored = self._objects.get(item.name)
        if stored is None or stored.generation != item.generation:
            raise ConflictError(f"{item.name} has changed.")
        self.put(item.name, data, content_type)

    def remove(self, item: Object) -> None:
        self.meanwhile()
        del self._objects[item.name]

    def put(self, name: str, data: bytes, content_type: str = "", metadata: object = None) -> None:
        self._generation += 1
        self._objects[name] = Stored(data, self._generation, self.time, content_type)
        self.history.append((name, data))

    def _object(self, name: str) -> Object:
        stored = self._objects[name]
        updated = clock.iso(stored.updated)
        return Object(name, Content.of(stored.data), stored.generation, updated, stored.content_type)
