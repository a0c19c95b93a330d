"""Copies what one listing has of a run to a folder: which objects, to which paths, whole or not at all.

- Gives each object of a run a path in its copy, or says why it has none.
- Selects what of a run is fetched.
- Lists a run, and decides which of its objects a copy of it has.
- Names the pieces of a run's logs, and the files that join them for people.
- Makes a folder the copy of a look at a run, a checkpoint whole or not at all.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from tpuctl.errors import NotFoundError
from tpuctl.flows.progress import ByteCount
from tpuctl.flows.runs import checkpoints
from tpuctl.flows.runs.checkpoints import Checkpoint, Listing, checkpoints_in
from tpuctl.flows.runs.stored_attempt import joined_pieces, left_behind
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.confined_folder import NotAFileError, UnsafeNameError, local_parts
from tpuctl.local.private_folder import Fold, Places
from tpuctl.local.staged_folder import StagedFolder
from tpuctl.object_content import METADATA
from tpuctl.parallel import fanout, values
from tpuctl.upkeep import REMOVAL_TYPE

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


RECORD = "run.json"


def assign_paths(folder: str, names: Iterable[str], fold: Fold) -> tuple[dict[str, Parts], dict[str, str]]:
    """Return the path of each object that gets one, and the reasons of the others.

    Files of tpuctl's own come first, then the deepest.
    """
    parts: dict[str, Parts] = {}
    refused: dict[str, str] = {}
    for name in names:
        try:
            parts[name] = local_parts(name.removeprefix(folder))
        except UnsafeNameError as error:
            refused[name] = str(error)
    taken = Places(fold)
    for log in sorted(joined_logs(parts.values())):
        taken.take(log)
    paths = {}
    for name in sorted(parts, key=lambda name: (parts[name] != (RECORD,), -len(parts[name]), name)):
        try:
            taken.take(parts[name])
            paths[name] = parts[name]
        except UnsafeNameError as error:
            refused[name] = str(error)
    return paths, refused


CHECKPOINTS, LOGS, TENSORBOARD, OUTPUTS = PARTS = ("checkpoints", "logs", "tensorboard", "outputs")
"""Parts of a run; its records are always fetched."""
RECORDS = "records"
_LOG = re.compile(r"attempts/[^/]+/(?:workers/[^/]+/)?log/.*", re.DOTALL)


@dataclass(frozen=True)
class Selection:
    """What is wanted of a run; all of what is committed unless it says otherwise."""

    only: Collection[str] = PARTS
    step: int | None = None
    """Checkpoints of this step alone."""
    latest: bool = False
    """Checkpoints of the newest step alone."""
    unfinished: bool = False
    """Also checkpoints that are not committed."""

    def has_part(self, name: str) -> bool:
        """Return whether an object is of a part that is wanted; its name is that below the run's folder."""
        return part_of(name) in (RECORDS, *self.only)

    def choose(self, listing: Listing, committed: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return the wanted ones of committed checkpoints; raises NotFoundError for a step without any."""
        if self.step is not None:
            chosen = [checkpoint for checkpoint in committed if checkpoint.step == self.step]
            if not chosen:
                raise _no_step(self.step, committed)
            return chosen
        if not self.latest or not committed:
            return list(committed)
        newest = max(committed, key=lambda checkpoint: listing.generation(checkpoint.files))
        return [
            checkpoint
            for checkpoint in committed
            if checkpoint == newest or (newest.step is not None and checkpoint.step == newest.step)
        ]


def part_of(name: str) -> str:
    """Return the part of a run that an object below its folder is of, RECORDS for any other."""
    first = name.partition("/")[0]
    if _LOG.fullmatch(name):
        return LOGS
    return first if first in (CHECKPOINTS, TENSORBOARD, OUTPUTS) else RECORDS


def _no_step(step: int, committed: Sequence[Checkpoint]) -> NotFoundError:
    steps = sorted({checkpoint.step for checkpoint in committed if checkpoint.step is not None})
    listed = ", ".join(map(str, steps[-10:]))
    hint = f"The newest are of step {listed}." if steps else "Its checkpoints have no number in their names."
    return NotFoundError(
        f"There is no committed checkpoint of step {step}.",
        hint=hint if committed else "The run has no committed checkpoint.",
        step=step,
    )


@dataclass(frozen=True)
class Look:
    """One consistent state of a run in the bucket."""

    listing: Listing
    joined: frozenset[str]
    """Pieces of logs that files have besides their own: a copy has them once."""
    files: tuple[Object, ...]
    """What is fetched, marks excepted."""
    marks: tuple[Object, ...]
    """What says that checkpoints are complete: a copy gets it last."""
    checkpoints: tuple[Checkpoint, ...]
    """The ones that are fetched; all their files are among the others."""
    committed: tuple[Checkpoint, ...]
    """All that are committed."""
    unfinished: tuple[Checkpoint, ...]
    """The ones that are not, each with its reason; of those that are wanted at all."""
    incomplete: tuple[Checkpoint, ...]
    """Unfinished ones that are fetched nevertheless."""

    def state_file(self, name: str, complete: set[str]) -> bytes | None:
        """Return what a copy with these complete checkpoints has as a state file; None if it names none."""
        members = [one.name for one in self.committed if name in one.marks]
        present = [member for member in members if member in complete]
        if present == members:
            return self.listing.contents.get(name)
        present.sort(key=lambda member: self.listing.generation(_files(self.committed, member)))
        return checkpoints.state_file(present) if present else None

    def is_state_file(self, name: str) -> bool:
        """Whether an object is one of TensorFlow's state files, which was read already."""
        return name.rpartition("/")[2] == checkpoints.STATE_FILE and name in self.listing.contents


def look_at(run: StoredRun, selection: Selection) -> Look:
    """List a run; raises GoneError if it changes meanwhile, NotFoundError for an unknown run or step."""
    objects = run.bucket.objects(run.paths.folder, more=METADATA)
    joined = joined_pieces(objects)
    left = left_behind(objects, joined)
    away = {piece.name for pieces in joined.values() for piece in pieces[1:]}
    listing = Listing(run.bucket, (item for item in objects if item.name not in left), run.warn)
    if not listing.objects:
        raise run.not_found()
    record = listing.objects.get(run.paths.record)
    if record and record.content_type == REMOVAL_TYPE:
        raise run.being_removed()
    every = checkpoints_in(listing)
    committed = tuple(checkpoint for checkpoint in every if not checkpoint.reason)
    unfinished = tuple(checkpoint for checkpoint in every if checkpoint.reason)
    chosen: tuple[Checkpoint, ...] = ()
    if CHECKPOINTS in selection.only:
        chosen = tuple(selection.choose(listing, committed))
    asked = unfinished if CHECKPOINTS in selection.only else ()
    others = set(committed) - set(chosen)
    left_out = {file for checkpoint in others for file in checkpoint.files}
    if not selection.unfinished:
        left_out.update(file for checkpoint in unfinished for file in checkpoint.files)
    marks = {mark for checkpoint in committed for mark in checkpoint.marks} - left_out
    wanted = [
        item
        for item in listing.objects.values()
        if item.name not in left_out and selection.has_part(item.name.removeprefix(run.paths.folder))
    ]
    return Look(
        listing,
        frozenset(
            name
            for name in away - listing.objects.keys()
            if selection.has_part(name.removeprefix(run.paths.folder))
        ),
        tuple(item for item in wanted if item.name not in marks),
        tuple(item for item in wanted if item.name in marks),
        chosen,
        committed,
        () if selection.unfinished else asked,
        asked if selection.unfinished else (),
    )


def _files(checkpoints: tuple[Checkpoint, ...], name: str) -> tuple[str, ...]:
    return next(checkpoint.files for checkpoint in checkpoints if checkpoint.name == name)


Parts = tuple[str, ...]
"""A path below the folder."""
CHUNK = re.compile(r"attempts/([1-9][0-9]{0,8})/workers/([0-9]{1,6})/log/([0-9]{6,12})\.log")
ORDERED_CHUNK = re.compile(r"attempts/([1-9][0-9]{0,8})/log/[0-9]{8}T[0-9]{6}-([0-9]{4})-([0-9]{6})\.log")
"""A piece of a worker's log: attempt, worker, number."""


def joined_logs(paths: Iterable[Parts]) -> dict[Parts, list[Parts]]:
    """Return `logs/attempt-K-worker-I.log` of each worker, with the paths of its pieces in order."""
    logs: dict[Parts, list[tuple[int, Parts]]] = {}
    for parts in paths:
        if chunk := _chunk(parts):
            attempt, worker, number = chunk
            log = ("logs", f"attempt-{attempt}-worker-{worker}.log")
            logs.setdefault(log, []).append((int(number), parts))
    return {log: [parts for _, parts in sorted(chunks)] for log, chunks in logs.items()}


def _chunk(parts: Parts) -> tuple[str, ...] | None:
    """Return attempt, worker and number of a log chunk, or None for any other path."""
    path = "/".join(parts)
    match = CHUNK.fullmatch(path)
    if match:
        return match.groups()
    ordered = ORDERED_CHUNK.fullmatch(path)
    return (ordered[1], str(int(ordered[2])), ordered[3]) if ordered else None


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
            item
            for item in items
            if item.name in self.places and self.state(item) not in (State.KEPT, State.FETCHED, State.REFUSED)
        ]
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
