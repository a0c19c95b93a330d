"""Changes the tags and notes of a run: of two changes at once none is lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from tpuctl import clock
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import ConflictError, NotFoundError, UsageError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import HttpRequest
from tpuctl.runs import decode, encode
from tpuctl.upkeep import notes
from tpuctl.upkeep.notes import Note, Notes, TagChange

TRIES = 200
"""Times that a change is tried; each time it fails, somebody else's has succeeded."""

Change = Callable[[Notes], Notes]


def tagging(change: TagChange) -> Change:
    """Return the change that sets and removes tags."""

    def apply(before: Notes) -> Notes:
        tags = {key: value for key, value in before.tags.items() if key not in change.removed}
        tags |= change.tags
        if len(tags) > notes.MOST_TAGS:
            raise UsageError(
                f"Run '{before.run}' would have {len(tags)} tags; {notes.MOST_TAGS} are the most.",
                hint=f"Remove some: tpuctl tag {before.run} {next(iter(before.tags))}-",
            )
        return msgspec.structs.replace(before, tags=dict(sorted(tags.items())))

    return apply


def noting(text: str, by: str, at: str) -> Change:
    """Return the change that adds a note."""
    note = Note(notes.check_note(text), by[:256], at, secrets.token_hex(8))

    def apply(before: Notes) -> Notes:
        if any(other.token == note.token for other in before.notes):
            return before  # it was written, and the answer was lost
        if len(before.notes) >= notes.MOST_NOTES:
            raise UsageError(
                f"Run '{before.run}' has {notes.MOST_NOTES} notes, which is the most.",
                hint="Keep longer texts beside the run, and name their place in a tag.",
            )
        return msgspec.structs.replace(before, notes=(*before.notes, note))

    return apply


def now(run: StoredRun) -> str:
    """Return the time by the bucket's clock."""
    return clock.iso(run.bucket.now())


def update(run: StoredRun, change: Change) -> Notes:
    """Change the notes of a run, and return them as they are now.

    Raises NotFoundError without such a run, BadObjectError for notes that are no record, UsageError for too
    many.
    """
    check_exists(run)
    for _ in range(TRIES):
        item = run.bucket.stat(run.paths.notes)
        try:
            data = run.bucket.read_listed(item, notes.LARGEST_NOTES) if item else b""
            before = decode(data, Notes, run.paths.notes) if item else Notes(run.name)
            after = change(before)
            if after == before:
                return after
            if item:
                run.bucket.replace(item, encode(after))
            else:
                run.bucket.create(run.paths.notes, encode(after))
        except (ConflictError, NotFoundError):
            continue  # another change was first
        return after
    raise ConflictError(f"The notes of run '{run.name}' keep changing.", hint="Try again.")


def requests(run: StoredRun, change: Change) -> list[HttpRequest]:
    """Return what `update` would send, for --dry-run."""
    check_exists(run)
    before, item = run.notes(), run.bucket.stat(run.paths.notes)
    after, rehearsal = change(before), run.bucket.dry_run()
    if after != before and item:
        rehearsal.replace(item, encode(after))
    elif after != before:
        rehearsal.create(run.paths.notes, encode(after))
    return rehearsal.requests


def check_exists(run: StoredRun) -> None:
    """Raise NotFoundError without such a run; one whose record cannot be read is one."""
    try:
        run.record  # noqa: B018  read for its error
    except BadObjectError:
        pass
