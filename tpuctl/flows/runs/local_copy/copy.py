"""Makes a folder the copy of a look at a run, a checkpoint whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.flows.byte_count import ByteCount
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint
from tpuctl.flows.runs.local_copy.joined_logs import Parts, joined_logs
from tpuctl.flows.runs.local_copy.look import Look
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.confined_folder import NotAFileError
from tpuctl.local.staged_folder import StagedFolder

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object


import errno
from collections.abc import Collection, Iterable
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.local_copy.paths import assign_paths
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


WIDTH = 8
"""Files fetched at once."""
NAME_ERRORS = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""With which a file system refuses a name."""


@dataclass(frozen=True)
class Refusal:
    """An object that was not written to this disk."""

    name: str
    reason: str
    """Fits after the name: `leads out of the folder`."""


class Copy:
    """One run's files on their way into one folder, through as many looks as it takes."""

    def __init__(self, run: StoredRun, local: StagedFolder, count: ByteCount) -> None:
        self._run = run
        self._local = local
        self._count = count
        self._arrivals = Arrivals(run.bucket, run.paths.folder, local, count)
        self._inherited = local.placed_before()
        """Files of checkpoints that a pull placed which did not come to its end."""
        self._known_marks: set[str] = set()
        """State files that were here, and are away while files are exchanged."""
        self._complete: set[str] = set()
        """Names of checkpoints that the folder has."""

    def count_new(self, look: Look) -> int:
        """Return the number of objects of a look that are not done with."""
        return sum(self._arrivals.state(item) is None for item in (*look.files, *look.marks))

    def bring(self, look: Look) -> bool:
        """Fetch what a look has and the folder lacks; False if some of it is gone from the bucket.

        Marks are not in their places yet: `finish` moves them there.
        """
        self._arrivals.assign([item.name for item in (*look.files, *look.marks)], look.listing.objects)
        self._complete = set()
        marks = [mark for mark in look.marks if not look.is_state_file(mark.name)]
        self._count.expect(sum(item.size for item in (*look.files, *marks)))
        groups = {name for one in look.checkpoints if len(one.files) > 1 for name in one.files}
        record = [item for item in look.files if item.name == self._run.paths.record]
        self._arrivals.fetch(record, groups)
        self._arrivals.fetch([item for item in look.files if item not in record], groups)
        for checkpoint in look.checkpoints:
            self._place(checkpoint, look)
        self._arrivals.fetch(marks, {mark.name for mark in marks})
        gone = any(self._arrivals.state(item) is State.GONE for item in (*look.files, *marks))
        return not gone and self._is_still_there(look)

    def finish(self, look: Look) -> None:
        """Place the marks of complete checkpoints, remove what the bucket has no more, join logs."""
        for mark in look.marks:
            self._place_mark(mark, look)
        for parts in self._leftovers(look):
            self._local.remove(parts)
        arrived = [self._arrivals.places[item.name] for item in look.files if self._arrivals.has(item)]
        for log, chunks in joined_logs(arrived).items():
            try:
                self._local.join(chunks, log)
            except NotAFileError as error:
                self._arrivals.refused[self._run.paths.folder + "/".join(log)] = str(error)

    def arrived(self, look: Look) -> list[Object]:
        """Return the objects of a look that the folder has."""
        return [item for item in (*look.files, *look.marks) if self._arrivals.has(item)]

    def unchanged(self, look: Look) -> int:
        """Return the number of files that the folder had before."""
        return [self._arrivals.state(item) for item in (*look.files, *look.marks)].count(State.KEPT)

    def complete(self, look: Look) -> list[Checkpoint]:
        """Return the checkpoints that the folder has."""
        return [checkpoint for checkpoint in look.checkpoints if checkpoint.name in self._complete]

    def why_not(self, checkpoint: Checkpoint) -> str:
        """Return why a committed checkpoint is not in the folder."""
        refused = self._arrivals.refused
        reasons = (f"{name} {refused[name]}" for name in checkpoint.files if name in refused)
        return next(reasons, "the bucket replaced it while it was fetched, each time")

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What cannot be written, by name."""
        return tuple(Refusal(name, reason) for name, reason in sorted(self._arrivals.refused.items()))

    def _place(self, checkpoint: Checkpoint, look: Look) -> None:
        """Move the files of a checkpoint to their places once all of them are here."""
        items = [look.listing.objects[name] for name in checkpoint.files if name not in checkpoint.marks]
        if not all(self._arrivals.has(item) for item in items):
            return
        new = [item for item in items if self._arrivals.is_waiting(item)]
        if any(self._local.exists(self._arrivals.places[item.name]) for item in new):
            self._remove_marks(checkpoint, look)
        for item in new:
            self._arrivals.place(item)
        self._complete.add(checkpoint.name)

    def _remove_marks(self, checkpoint: Checkpoint, look: Look) -> None:
        """Remove what calls a checkpoint complete while its files are exchanged."""
        places = self._arrivals.places
        for mark in (look.listing.objects[mark] for mark in checkpoint.marks if mark in places):
            if self._local.has(places[mark.name], mark.content):
                self._known_marks.add(mark.name)
            self._local.remove(places[mark.name])
            self._arrivals.forget(mark)

    def _place_mark(self, mark: Object, look: Look) -> None:
        """Write a mark if every checkpoint that it marks is complete, or what of it is true."""
        if mark.name not in self._arrivals.places:
            return
        if look.is_state_file(mark.name):
            self._write_state_file(mark, look)
            return
        owner = next(checkpoint for checkpoint in look.committed if mark.name in checkpoint.marks)
        if owner.name in self._complete and self._arrivals.is_waiting(mark):
            self._arrivals.place(mark)

    def _write_state_file(self, mark: Object, look: Look) -> None:
        content, parts = look.state_file(mark.name, self._complete), self._arrivals.places[mark.name]
        if content is None:
            return
        had = self._local.has(parts, mark.content.of(content))
        if not had:
            self._local.write(content, parts)
        self._arrivals.note(mark, State.KEPT if had or mark.name in self._known_marks else State.FETCHED)

    def _is_still_there(self, look: Look) -> bool:
        """Whether the bucket still has the checkpoints: files of one that is being deleted go one by one."""
        items = [
            look.listing.objects[name]
            for checkpoint in look.checkpoints
            for name in checkpoint.files
            if len(checkpoint.files) > 1
        ]
        wanted = {
            (item.name, item.generation) for item in items if self._arrivals.state(item) is State.FETCHED
        }
        if not wanted:
            return True
        listed = self._run.bucket.objects(self._run.paths.checkpoints)
        return wanted <= {(item.name, item.generation) for item in listed}

    def _leftovers(self, look: Look) -> set[Parts]:
        """Return the paths of what was fetched, and is not of this look any more."""
        unfinished = {name for checkpoint in look.unfinished for name in checkpoint.files}
        listed = {name for name in look.listing.objects if name not in unfinished}
        folder, places = self._run.paths.folder, self._arrivals.places
        stale = {parts for parts in self._inherited if folder + "/".join(parts) not in listed}
        joined = {tuple(name.removeprefix(folder).split("/")) for name in look.joined}
        stale |= {parts for parts in joined if self._local.exists(parts)}
        return stale | (self._arrivals.written - {places[name] for name in listed if name in places})


# Brings objects into a folder, each to its place or to where it waits, and knows what became of each.


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
