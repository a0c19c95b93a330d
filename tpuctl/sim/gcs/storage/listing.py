"""Listing objects by index seeks: the walk over the rows, and the page of objects and common prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tpuctl.sim.gcs.rules import ListQuery, Position
from tpuctl.sim.gcs.storage.blobs import Database
from tpuctl.sim.gcs.storage.objects import TABLE
from tpuctl.sim.gcs.storage.stored_object import COLUMNS, StoredObject


@dataclass
class Page:
    """One page of a listing, and where the next page begins."""

    items: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    next: Position | None = None

    def __len__(self) -> int:
        return len(self.items) + len(self.prefixes)


def list_page(database: Database, bucket: str, query: ListQuery) -> Page:
    """Return the page of a listing that begins at the query's position, by the names' UTF-8."""
    page = Page()
    last_prefix = query.position.prefix
    for stored in _Walk(database, bucket, query):
        prefix = query.common_prefix(stored.name)
        if prefix and prefix != last_prefix:
            if len(page) == query.limit:
                page.next = Position(stored.name, stored.generation, last_prefix)
                return page
            page.prefixes.append(prefix)
            last_prefix = prefix
        if not prefix or (query.trailing_delimiter and stored.name == prefix):
            if len(page) == query.limit:
                page.next = Position(stored.name, stored.generation, last_prefix)
                return page
            page.items.append(stored)
    return page


class _Walk:
    """The objects that a listing must read: one seek skips all objects below a common prefix."""

    def __init__(self, database: Database, bucket: str, query: ListQuery) -> None:
        self._database = database
        self._bucket = bucket
        self._query = query

    def __iter__(self) -> Iterator[StoredObject]:
        query = self._query
        seek: Position | None = max(
            Position(max(query.prefix, query.start_offset)),
            query.position,
            key=lambda position: (position.name, position.generation),
        )
        while seek is not None:
            start, seek = seek, None
            for stored in self._rows(start):
                if not stored.name.startswith(query.prefix):
                    return
                if query.end_offset and stored.name >= query.end_offset:
                    return
                if query.glob is not None and not query.glob.fullmatch(stored.name):
                    continue
                yield stored
                prefix = query.common_prefix(stored.name)
                if prefix and stored.name != prefix:
                    following = _after(prefix)
                    seek = Position(following) if following is not None else None
                    break

    def _rows(self, start: Position) -> Iterator[StoredObject]:
        table = TABLE if self._query.soft_deleted else "objects"
        live = "" if self._query.versions or self._query.soft_deleted else " and live = 1"
        return self._database.rows(
            StoredObject.of_row,
            f"select {COLUMNS} from {table} where bucket = ? and (name, generation) >= (?, ?){live} "
            "order by name, generation",
            (self._bucket, start.name, start.generation),
        )


def _after(prefix: str) -> str | None:
    """Return the least string above all that begin with `prefix`."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following == 0xD800:  # surrogates are no characters, so no query may contain them
            following = 0xE000
        if following <= 0x10FFFF:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None
