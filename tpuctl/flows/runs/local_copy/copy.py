"""Brings the objects of looks at a run into a folder, a checkpoint whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint
from tpuctl.flows.runs.local_copy.byte_count import ByteCount, Progress
from tpuctl.flows.runs.local_copy.joined_logs import Parts, joined_logs
from tpuctl.flows.runs.local_copy.look import Look
from tpuctl.flows.runs.local_copy.paths import assign_paths
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.confined_folder import NotAFileError
from tpuctl.local.staged_folder import StagedFolder
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from pathlib import Path

    from tpuctl.cloud.storage import Object

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


class _State(Enum):
    """What has become of an object."""

    KEPT = "the folder had it"
    FETCHED = "it is new"
    REFUSED = "it cannot be written"
    GONE = "the bucket has it no more"


class Copy:
    """One run's files on their way into one folder, through as many looks as it takes."""

    def __init__(self, run: StoredRun, local: StagedFolder, progress: Progress) -> None:
        self._run = run
        self._local = local
        self._bytes = ByteCount(progress)
        self._states: dict[tuple[str, int], _State] = {}
        """Of each name and generation that is done with."""
        self._refused: dict[str, str] = {}
        self._written: set[Parts] = set()
        self._inherited = local.placed_before()
        """Files of checkpoints that a pull placed which did not come to its end."""
        self._known_marks: set[str] = set()
        """State files that were here, and are away while files are exchanged."""
        self._places: dict[str, Parts] = {}
        self._complete: set[str] = set()
        """Names of checkpoints that the folder has."""

    def count_new(self, look: Look) -> int:
        """Return the number of objects of a look that are not done with."""
        return sum(self._state(item) is None for item in (*look.files, *look.marks))

    def bring(self, look: Look) -> bool:
        """Fetch what a look has and the folder lacks; False if some of it is gone from the bucket.

        Marks are not in their places yet: `finish` moves them there.
        """
        self._refused = {
            name: reason for name, reason in self._refused.items() if name in look.listing.objects
        }
        names = [item.name for item in (*look.files, *look.marks)]
        self._places, refused = assign_paths(self._run.paths.folder, names, self._local.fold)
        self._refused |= refused
        self._complete = set()
        marks = [mark for mark in look.marks if not look.is_state_file(mark.name)]
        self._bytes.expect(sum(item.size for item in (*look.files, *marks)))
        groups = {name for one in look.checkpoints if len(one.files) > 1 for name in one.files}
        record = [item for item in look.files if item.name == self._run.paths.record]
        self._fetch(record, groups)
        self._fetch([item for item in look.files if item not in record], groups)
        for checkpoint in look.checkpoints:
            self._place(checkpoint, look)
        self._fetch(marks, {mark.name for mark in marks})
        gone = any(self._state(item) is _State.GONE for item in (*look.files, *marks))
        return not gone and self._is_still_there(look)

    def finish(self, look: Look) -> None:
        """Place the marks of complete checkpoints, remove what the bucket has no more, join logs."""
        for mark in look.marks:
            self._place_mark(mark, look)
        for parts in self._leftovers(look):
            self._local.remove(parts)
        arrived = [self._places[item.name] for item in look.files if self._has(item)]
        for log, chunks in joined_logs(arrived).items():
            try:
                self._local.join(chunks, log)
            except NotAFileError as error:
                self._refused[self._run.paths.folder + "/".join(log)] = str(error)

    def arrived(self, look: Look) -> list[Object]:
        """Return the objects of a look that the folder has."""
        return [item for item in (*look.files, *look.marks) if self._has(item)]

    def unchanged(self, look: Look) -> int:
        """Return the number of files that the folder had before."""
        return [self._state(item) for item in (*look.files, *look.marks)].count(_State.KEPT)

    def complete(self, look: Look) -> list[Checkpoint]:
        """Return the checkpoints that the folder has."""
        return [checkpoint for checkpoint in look.checkpoints if checkpoint.name in self._complete]

    def why_not(self, checkpoint: Checkpoint) -> str:
        """Return why a committed checkpoint is not in the folder."""
        reasons = (f"{name} {self._refused[name]}" for name in checkpoint.files if name in self._refused)
        return next(reasons, "the bucket replaced it while it was fetched, each time")

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What cannot be written, by name."""
        return tuple(Refusal(name, reason) for name, reason in sorted(self._refused.items()))

    def _fetch(self, items: Iterable[Object], waiting: Collection[str]) -> None:
        """Bring objects that are not done with; those of `waiting` wait for others before they are placed."""
        new = [
            item for item in items if item.name in self._places
            and self._state(item) not in (_State.KEPT, _State.FETCHED, _State.REFUSED)
        ]  # fmt: skip
        try:
            results = fanout(lambda item: self._bring(item, wait=item.name in waiting), new, width=WIDTH)
        except BaseException:
            self._bytes.end()
            raise
        for item, state in zip(new, values(results), strict=True):
            self._states[item.name, item.generation] = state

    def _bring(self, item: Object, *, wait: bool) -> _State:
        """Bring one object to its place, or to where it waits."""
        parts = self._places[item.name]
        try:
            if self._local.has(parts, item.content):
                self._bytes.add(item.size)
                return _State.KEPT
            if wait:
                self._wait(item)
            else:
                with self._local.staged(parts) as path:
                    self._download(item, path)
                self._written.add(parts)
        except NotAFileError as error:
            self._refused[item.name] = str(error)
            return _State.REFUSED
        except NotFoundError:
            return _State.GONE
        except OSError as error:
            if error.errno not in NAME_ERRORS:
                raise
            self._refused[item.name] = "cannot be the name of a file on this disk"
            return _State.REFUSED
        return _State.FETCHED

    def _wait(self, item: Object) -> None:
        path = self._local.waiting(_key(item))
        if path.exists() and item.content.of_file(path) == item.content:
            self._bytes.add(item.size)
            return
        path.unlink(missing_ok=True)
        self._download(item, path)

    def _download(self, item: Object, path: Path) -> None:
        self._run.bucket.download(item, path, self._bytes.add)

    def _place(self, checkpoint: Checkpoint, look: Look) -> None:
        """Move the files of a checkpoint to their places once all of them are here."""
        items = [look.listing.objects[name] for name in checkpoint.files if name not in checkpoint.marks]
        if not all(self._has(item) for item in items):
            return
        new = [item for item in items if self._local.waiting(_key(item)).exists()]
        if any(self._local.exists(self._places[item.name]) for item in new):
            self._remove_marks(checkpoint, look)
        for item in new:
            self._move(item)
        self._complete.add(checkpoint.name)

    def _remove_marks(self, checkpoint: Checkpoint, look: Look) -> None:
        """Remove what calls a checkpoint complete while its files are exchanged."""
        for mark in (look.listing.objects[mark] for mark in checkpoint.marks if mark in self._places):
            parts = self._places[mark.name]
            if self._local.has(parts, mark.content):
                self._known_marks.add(mark.name)
            self._local.remove(parts)
            self._states.pop((mark.name, mark.generation), None)

    def _move(self, item: Object) -> None:
        parts = self._places[item.name]
        self._written.add(parts)
        try:
            self._local.place(self._local.waiting(_key(item)), parts)
        except NotAFileError as error:
            self._refused[item.name] = str(error)
            self._states[item.name, item.generation] = _State.REFUSED

    def _place_mark(self, mark: Object, look: Look) -> None:
        """Write a mark if every checkpoint that it marks is complete, or what of it is true."""
        if mark.name not in self._places:
            return
        parts = self._places[mark.name]
        if look.is_state_file(mark.name):
            content = look.state_file(mark.name, self._complete)
            had = content is not None and self._local.has(parts, mark.content.of(content))
            if content is not None and not had:
                self._local.write(content, parts)
            if content is not None:
                known = had or mark.name in self._known_marks
                self._states[mark.name, mark.generation] = _State.KEPT if known else _State.FETCHED
            return
        owner = next(checkpoint for checkpoint in look.committed if mark.name in checkpoint.marks)
        if owner.name in self._complete and self._local.waiting(_key(mark)).exists():
            self._move(mark)

    def _is_still_there(self, look: Look) -> bool:
        """Whether the bucket still has the checkpoints: files of one that is being deleted go one by one."""
        wanted = {
            (name, look.listing.objects[name].generation)
            for checkpoint in look.checkpoints
            for name in checkpoint.files
            if len(checkpoint.files) > 1
            and self._states.get((name, look.listing.objects[name].generation)) is _State.FETCHED
        }
        if not wanted:
            return True
        listed = self._run.bucket.objects(self._run.paths.checkpoints)
        return wanted <= {(item.name, item.generation) for item in listed}

    def _leftovers(self, look: Look) -> set[Parts]:
        """Return the paths of what was fetched, and is not of this look any more."""
        unfinished = {name for checkpoint in look.unfinished for name in checkpoint.files}
        listed = {name for name in look.listing.objects if name not in unfinished}
        folder = self._run.paths.folder
        stale = {parts for parts in self._inherited if folder + "/".join(parts) not in listed}
        return stale | (self._written - {self._places[name] for name in listed if name in self._places})

    def _state(self, item: Object) -> _State | None:
        return self._states.get((item.name, item.generation))

    def _has(self, item: Object) -> bool:
        return item.name in self._places and self._state(item) in (_State.KEPT, _State.FETCHED)


def _key(item: Object) -> str:
    """Return the name under which an object waits: another for each generation and content."""
    return sha256(f"{item.name}\0{item.generation}\0{item.content.crc32c}".encode()).hexdigest()
