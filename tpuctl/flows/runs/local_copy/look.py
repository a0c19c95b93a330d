"""Lists a run, and decides which of its objects a copy of it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.flows.runs.checkpoints import tensorflow
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint
from tpuctl.flows.runs.checkpoints.listing import Listing
from tpuctl.flows.runs.checkpoints.readers import checkpoints_in
from tpuctl.flows.runs.local_copy.selection import CHECKPOINTS, Selection
from tpuctl.flows.runs.stored_attempt import joined_pieces, left_behind
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.object_content import METADATA
from tpuctl.upkeep.removal import REMOVAL_TYPE

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object


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
        return tensorflow.state_file(present) if present else None

    def is_state_file(self, name: str) -> bool:
        """Whether an object is one of TensorFlow's state files, which was read already."""
        return name.rpartition("/")[2] == tensorflow.STATE_FILE and name in self.listing.contents


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
