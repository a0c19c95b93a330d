"""A bucket in memory that counts requests: 256 workers of the real one would take a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tpuctl.host import gcs


class CountingBucket:
    """What of the worker's `gcs.Bucket` workers need to meet; `time` passes only when a test says so."""

    name = "b"

    def __init__(self) -> None:
        self.time = 0.0
        self.is_down = self.is_deleted = False
        self.requests: Counter[str] = Counter()
        """Method and name -> how often it was asked for."""
        self._objects: dict[str, tuple[int, bytes, float]] = {}
        self._generation = 0

    def put(self, name: str, data: bytes, if_generation: int | None = None, content_type: str = "") -> int:
        self._count("PUT", name)
        if if_generation is not None and if_generation != self._objects.get(name, (0,))[0]:
            raise gcs.PreconditionError(name)
        self._generation += 1
        self._objects[name] = self._generation, data, self.time
        return self._generation

    def create(self, name: str, data: bytes, content_type: str) -> bool:
        try:
            self.put(name, data, 0)
        except gcs.PreconditionError:
            return self.get(name) == data
        return True

    def clear(self) -> None:
        """Delete all objects, as somebody who empties the bucket."""
        self._objects.clear()

    def read(self, name: str, most: int) -> tuple[int, bytes]:
        self._count("GET", name)
        generation, data, _ = self._objects.get(name, (0, b"", 0.0))
        return generation, data[:most]

    def get(self, name: str, generation: int | None = None) -> bytes:
        stored, data = self.read(name, 1 << 30)
        if stored == 0 or generation not in (None, stored):
            raise FileNotFoundError(name)
        return data

    def now(self) -> float:
        return self.time

    def stat(self, name: str) -> tuple[int, int]:
        generation, data = self.read(name, 1 << 30)
        return generation, len(data)

    def list(self, prefix: str, glob: str = "") -> Iterator[gcs.Item]:
        names = sorted(name for name in self._objects if name.startswith(prefix))
        for _ in range(0, max(1, len(names)), 1000):
            self._count("LIST", prefix)
        for name in names:
            generation, _, written = self._objects[name]
            yield gcs.Item(name, generation, self.time - written)

    def _count(self, method: str, name: str) -> None:
        if self.is_down:
            raise gcs.GcsError("503")
        if self.is_deleted:
            raise gcs.RefusedError(f"{method} {name}", 404, "The specified bucket does not exist.")
        self.requests[f"{method} {name}"] += 1
