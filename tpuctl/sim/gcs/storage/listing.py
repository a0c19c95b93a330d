"""Listing objects: prefixes, delimiters, globs and pages, by index seeks."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.rules.globs import compile_glob
from tpuctl.sim.gcs.rules.preconditions import parse_number
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.soft_deletes import TABLE
from tpuctl.sim.gcs.storage.stored_object import COLUMNS, StoredObject

LARGEST_PAGE = 1000
"""Objects and prefixes together on one page, at most and by default."""


@dataclass(frozen=True)
class Position:
    """Where a page begins: the first key to look at, and the prefix that was shown last."""

    name: str = ""
    generation: int = 0
    prefix: str = ""

    @classmethod
    def of_token(cls, token: str) -> Position:
        """Read a page token; raises 400."""
        try:
            name, generation, prefix = json.loads(base64.urlsafe_b64decode(token))
            return cls(str(name), int(generation), str(prefix))
        except (ValueError, TypeError, binascii.Error) as error:
            raise invalid("Invalid value for parameter pageToken.") from error

    def to_token(self) -> str:
        """Write a page token."""
        return base64.urlsafe_b64encode(
            json.dumps([self.name, self.generation, self.prefix]).encode()
        ).decode()


@dataclass(frozen=True)
class ListQuery:
    """What one page of a listing is asked to hold."""

    prefix: str = ""
    delimiter: str = ""
    start_offset: str = ""
    end_offset: str = ""
    glob: re.Pattern[str] | None = None
    versions: bool = False
    soft_deleted: bool = False
    trailing_delimiter: bool = False
    limit: int = LARGEST_PAGE
    position: Position = Position()

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListQuery:
        """Read the parameters of objects.list; raises 400."""
        if is_true(query.get("softDeleted")) and is_true(query.get("versions")):
            raise invalid("softDeleted and versions cannot both be true.")
        limit = parse_number("maxResults", query.get("maxResults") or LARGEST_PAGE)
        token = query.get("pageToken")
        return cls(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start_offset=query.get("startOffset", ""),
            end_offset=query.get("endOffset", ""),
            glob=compile_glob(query["matchGlob"]) if query.get("matchGlob") else None,
            versions=is_true(query.get("versions")),
            soft_deleted=is_true(query.get("softDeleted")),
            trailing_delimiter=is_true(query.get("includeTrailingDelimiter")),
            limit=min(limit, LARGEST_PAGE) or LARGEST_PAGE,
            position=Position.of_token(token) if token else Position(),
        )

    def common_prefix(self, name: str) -> str:
        """Return the prefix under which a name is shown, or nothing."""
        if not self.delimiter:
            return ""
        at = name.find(self.delimiter, len(self.prefix))
        return name[: at + len(self.delimiter)] if at >= 0 else ""


@dataclass
class Page:
    """One page of a listing, and where the next one begins."""

    items: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    next: Position | None = None

    def __len__(self) -> int:
        return len(self.items) + len(self.prefixes)


def list_page(database: Database, bucket: str, query: ListQuery) -> Page:
    """Return the next page, in the order of the names' UTF-8."""
    page = Page()
    shown = query.position.prefix
    for stored in _Walk(database, bucket, query):
        prefix = query.common_prefix(stored.name)
        if prefix and prefix != shown:
            if len(page) == query.limit:
                page.next = Position(stored.name, stored.generation, shown)
                return page
            page.prefixes.append(prefix)
            shown = prefix
        if not prefix or (query.trailing_delimiter and stored.name == prefix):
            if len(page) == query.limit:
                page.next = Position(stored.name, stored.generation, shown)
                return page
            page.items.append(stored)
    return page


class _Walk:
    """The objects a listing must look at: it passes over what is under a common prefix by one seek."""

    def __init__(self, database: Database, bucket: str, query: ListQuery) -> None:
        self._database = database
        self._bucket = bucket
        self._query = query

    def __iter__(self) -> Iterator[StoredObject]:
        query = self._query
        seek: Position | None = max(
            Position(max(query.prefix, query.start_offset)),
            query.position,
            key=lambda at: (at.name, at.generation),
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
                    after = _after(prefix)
                    seek = Position(after) if after is not None else None
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
        if following == 0xD800:  # surrogates are no characters and cannot be asked of the database
            following = 0xE000
        if following <= 0x10FFFF:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None


def is_true(text: str | None) -> bool:
    """Return whether a parameter says `true`."""
    return (text or "").lower() == "true"
