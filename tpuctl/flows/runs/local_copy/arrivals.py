"""Brings objects into a folder, each to its place or to where it waits, and knows what became of each."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from tpuctl.errors import NotFoundError
from tpuctl.flows.byte_count import ByteCount
from tpuctl.flows.runs.local_copy.joined_logs import Parts
from tpuctl.flows.runs.local_copy.paths import assign_paths
from tpuctl.local.confined_folder import NotAFileError
from tpuctl.local.staged_folder import StagedFolder
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

WIDTH = 8
"""Files fetched at once."""
NAME_ERRORS = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""With which a file system refuses a name."""


class State(Enum):
    """What has become of an object."""

    KEPT = "the folder had it"
    FETCHED = "it is new"
    REFUSED = "it cannot be written"
    GONE = "the bucket has it no more"


class Arrivals:
    """The objects of one prefix of a bucket on their way into one folder."""

    def __init__(self, bucket: Bucket, prefix: str, local: StagedFolder, count: ByteCount) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._local = local
        self._count = count
        self._states: dict[tuple[str, int], State] = {}
        """Of each name and generation that is done with."""
        self.places: dict[str, Parts] = {}
        """The path of each object that gets one."""
        self.refused: dict[str, str] = {}
        """Why an object, by name, is not written."""
        self.written: set[Parts] = set()
        """The paths that were written."""

    def assign(self, names: Collection[str], listed: Collection[str]) -> None:
        """Give objects their places; what was refused and is not `listed` any more is forgotten."""
        self.places, refused = assign_paths(self._prefix, names, self._local.fold)
        self.refused = {name: why for name, why in self.refused.items() if name in listed} | refused

    def fetch(self, items: Iterable[Object], waiting: Collection[str]) -> None:
        """Bring objects that are not done with; those of `waiting` wait for others before they are placed."""
        new = [
            item for item in items if item.name in self.places
            and self.state(item) not in (State.KEPT, State.FETCHED, State.REFUSED)
        ]  # fmt: skip
        results = fanout(lambda item: self._bring(item, wait=item.name in waiting), new, width=WIDTH)
        for item, state in zip(new, values(results), strict=True):
            self.note(item, state)

    def is_waiting(self, item: Object) -> bool:
        """Return whether an object is complete and waits to be placed."""
        return self._local.waiting(_key(item)).exists()

    def place(self, item: Object) -> None:
        """Move an object that waits to its place."""
        parts = self.places[item.name]
        self.written.add(parts)
        try:
            self._local.place(self._local.waiting(_key(item)), parts)
        except NotAFileError as error:
            self.refused[item.name] = str(error)
            self.note(item, State.REFUSED)

    def state(self, item: Object) -> State | None:
        """Return what became of an object, None while it is not known."""
        return self._states.get((item.name, item.generation))

    def note(self, item: Object, state: State) -> None:
        """Note what became of an object."""
        self._states[item.name, item.generation] = state

    def forget(self, item: Object) -> None:
        """Note that an object is to be brought again."""
        self._states.pop((item.name, item.generation), None)

    def has(self, item: Object) -> bool:
        """Return whether the folder has an object, or has it waiting."""
        return item.name in self.places and self.state(item) in (State.KEPT, State.FETCHED)

    def _bring(self, item: Object, *, wait: bool) -> State:
        """Bring one object to its place, or to where it waits."""
        parts = self.places[item.name]
        try:
            if self._local.has(parts, item.content):
                self._count.add(item.size)
                return State.KEPT
            if wait:
                self._fetch_waiting(item)
            else:
                with self._local.staged(parts) as path:
                    self._bucket.download(item, path, self._count.add)
                self.written.add(parts)
        except NotAFileError as error:
            self.refused[item.name] = str(error)
            return State.REFUSED
        except NotFoundError:
            return State.GONE
        except OSError as error:
            if error.errno not in NAME_ERRORS:
                raise
            self.refused[item.name] = "cannot be the name of a file on this disk"
            return State.REFUSED
        return State.FETCHED

    def _fetch_waiting(self, item: Object) -> None:
        path = self._local.waiting(_key(item))
        if path.exists() and item.content.of_file(path) == item.content:
            self._count.add(item.size)
            return
        with self._local.completing(path.name) as new:
            self._bucket.download(item, new, self._count.add)


def _key(item: Object) -> str:
    """Return the name under which an object waits: another for each generation and content."""
    return sha256(f"{item.name}\0{item.generation}\0{item.content.crc32c}".encode()).hexdigest()
