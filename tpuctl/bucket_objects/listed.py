"""Defines what a bucket lists of its objects, a page at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

UNKNOWN = -1
"""In the place of a checksum that nobody has computed."""


class ListedObject(NamedTuple):
    """One object as the bucket lists it."""

    name: str
    size: int
    """Bytes as they are stored."""
    generation: int
    crc32c: int = UNKNOWN
    encoding: str = ""
    """Content-Encoding: `gzip` where the bytes are those of another file, packed."""


class ObjectPage(NamedTuple):
    """Some of the objects directly under a prefix, and of the folders there."""

    items: list[ListedObject]
    folders: list[str]
    """Prefixes that end in a slash."""
    token: str
    """Of the page that follows; empty for the last."""


class ListedObjects(Protocol):
    """The objects of one bucket, from any thread; what fails is a TpuctlError."""

    @property
    def bucket(self) -> str:
        """Name of the bucket."""

    def page(self, prefix: str, token: str = "", most: int = 0) -> ObjectPage:
        """Return what is directly under a prefix, a page at a time."""

    def find(self, name: str) -> ListedObject | None:
        """Return an object as it is now; None where there is none."""

    def read(self, item: ListedObject, start: int, end: int) -> bytes:
        """Return bytes of the generation that was listed; raises NotFoundError when it is gone."""
