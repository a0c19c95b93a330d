"""Holds what one listing has of a bucket, and reads small objects in the generations that it lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError
from tpuctl.flows.progress import Report, silent

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

MOST_HELD = 64 << 20
"""Bytes of small objects that are held: each is read once."""
FOLDER = "/checkpoints/"
"""What the names of all checkpoints have; elsewhere a file is a file."""


class GoneError(Exception):
    """An object has been replaced or deleted since it was listed: another listing knows more."""


class Listing:
    """The objects of a run at one moment."""

    def __init__(self, bucket: Bucket, objects: Iterable[Object], warn: Report = silent) -> None:
        """`warn` gets a line about each small object that is not what its name says."""
        self._bucket = bucket
        self._warn = warn
        self.objects: Mapping[str, Object] = {item.name: item for item in objects if item.name[-1:] != "/"}
        """Every file by its name, in the order of names."""
        self.contents: dict[str, bytes] = {}
        """What was read of them."""
        self._held = 0

    @property
    def bucket_name(self) -> str:
        return self._bucket.name

    def read(self, name: str, most: int) -> bytes | None:
        """Return the bytes of an object, or None after a warning if it is too large; raises GoneError.

        So it is if all that were read before are too large together.
        """
        try:
            if name not in self.contents:
                item = self.objects[name]
                if item.size > MOST_HELD - self._held:
                    raise BadObjectError(name, f"is one of those with more than {MOST_HELD:,} bytes together")
                self.contents[name] = self._bucket.read_listed(item, most)
                self._held += item.size
            return self.contents[name]
        except BadObjectError as error:
            self._warn(error.message)
            return None
        except NotFoundError as error:
            raise GoneError(name) from error

    def generation(self, names: Iterable[str]) -> int:
        """Return the newest generation of some objects, by which the bucket orders what is written."""
        return max((self.objects[name].generation for name in names if name in self.objects), default=0)
