"""Copies a run to this machine: committed checkpoints, logs and records, each file verified.

Names and contents are those of whoever can write to the bucket: each name is checked, and no link in the
folder is followed. While the run goes on its objects change: a copy is of one state that the bucket had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tpuctl import polling
from tpuctl.errors import ConflictError, DeadlineError, StateError
from tpuctl.flows import download_folder
from tpuctl.flows.progress import ByteCount, Outage, Progress, Report
from tpuctl.flows.runs.checkpoints import LOOKS, Checkpoint, GoneError
from tpuctl.flows.runs.local_copy import RECORD, Copy, Look, Refusal, Selection, look_at
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.confined_folder import NotAFileError, read_file
from tpuctl.polling import Sleep
from tpuctl.runs import LARGEST, Run, decode

EVERYTHING = Selection()
PAUSE = 10.0
"""Seconds between two looks at a run that is followed."""


@dataclass(frozen=True)
class Copied:
    """A checkpoint that the folder has."""

    name: str
    """Below the run's folder."""
    format: str
    step: int | None
    size: int
    """Bytes of its files."""


@dataclass(frozen=True)
class Unfinished:
    """A checkpoint that is not complete, or not in the folder."""

    name: str
    """Below the run's folder."""
    format: str
    reason: str


@dataclass(frozen=True)
class PullResult:
    """The copy of a run."""

    folder: Path
    files: int
    size: int
    """Bytes of all files."""
    unchanged: int
    """Files that an earlier pull had fetched, with the right checksum."""
    uncommitted: tuple[str, ...]
    """Objects of unfinished checkpoints: not fetched."""
    refused: tuple[Refusal, ...] = ()
    """Objects with names that must not be written, or with something else in their place."""
    checkpoints: tuple[Copied, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    """Why each unfinished checkpoint is none."""
    incomplete: tuple[Unfinished, ...] = ()
    """The unfinished ones that are fetched, because they are asked for."""


def pull(
    run: StoredRun,
    folder: Path,
    report: Report,
    selection: Selection = EVERYTHING,
    progress: Progress = lambda here, size: None,
) -> PullResult:
    """Fetch a run into `folder`, without unfinished checkpoints; files that are unchanged are skipped.

    Raises NotFoundError for an unknown run or step, UsageError for a folder that holds something else or
    cannot be written, DeadlineError for a file that arrives damaged.
    """
    with _copying(run, folder, report, progress) as copy:
        look = _bring(run, copy, selection, report)
        copy.finish(look)
        return _result(run, folder, copy, look)


def follow(
    run: StoredRun,
    folder: Path,
    report: Report,
    has_ended: Callable[[], bool],
    selection: Selection = EVERYTHING,
    progress: Progress = lambda here, size: None,
    sleep: Sleep = polling.sleep,
) -> PullResult:
    """Keep a copy of a run current until the run has ended, and return the last state; raises as `pull` does.

    What the bucket deletes meanwhile, such as checkpoints that are rotated, is deleted in the folder. While
    the run goes on, a bucket that does not answer, or changes too fast, is looked at again.
    """
    outage = Outage(report, "following")
    with _copying(run, folder, report, progress) as copy:
        while True:
            is_last = False
            try:
                is_last = has_ended()
                look = _bring(run, copy, selection, report)
                copy.finish(look)
                outage.end()
                if is_last:
                    return _result(run, folder, copy, look)
            except (ConflictError, DeadlineError) as error:
                if is_last:
                    raise
                outage.note(error)
            sleep(PAUSE)


@contextmanager
def _copying(run: StoredRun, folder: Path, report: Report, progress: Progress) -> Iterator[Copy]:
    if not run.bucket.objects(run.paths.folder, most=1):
        raise run.not_found()

    def check() -> None:
        check_folder(folder, run.name)

    with download_folder.filling(folder, report, check) as local, ByteCount(progress) as count:
        yield Copy(run, local, count)


def _bring(run: StoredRun, copy: Copy, selection: Selection, report: Report) -> Look:
    """Look at the run until all of a look is here, or the bucket has changed too often meanwhile."""
    look = None
    for _ in range(LOOKS):
        try:
            newer = look_at(run, selection)
        except GoneError:
            continue
        if look is None and (count := copy.count_new(newer)):
            report(f"fetching {count} files")
        look = newer
        if copy.bring(look):
            break
    if look is None:
        raise ConflictError(
            f"The checkpoints of run '{run.name}' change faster than they are read.",
            hint=f"tpuctl pull {run.name}",
        )
    return look


def _result(run: StoredRun, folder: Path, copy: Copy, look: Look) -> PullResult:
    arrived = copy.arrived(look)
    complete = copy.complete(look)
    missed = [checkpoint for checkpoint in look.checkpoints if checkpoint not in complete]
    left_out = {name for checkpoint in (*look.unfinished, *missed) for name in checkpoint.files}

    def below(name: str) -> str:
        return name.removeprefix(run.paths.folder)

    def copied(checkpoint: Checkpoint) -> Copied:
        size = sum(look.listing.objects[name].size for name in checkpoint.files)
        return Copied(below(checkpoint.name), checkpoint.format, checkpoint.step, size)

    def unfinished(checkpoint: Checkpoint) -> Unfinished:
        return Unfinished(
            below(checkpoint.name), checkpoint.format, checkpoint.reason or copy.why_not(checkpoint)
        )

    return PullResult(
        folder=folder,
        files=len(arrived),
        size=sum(item.size for item in arrived),
        unchanged=copy.unchanged(look),
        uncommitted=tuple(sorted(left_out)),
        refused=copy.refused,
        checkpoints=tuple(map(copied, complete)),
        unfinished=tuple(map(unfinished, (*look.unfinished, *missed))),
        incomplete=tuple(map(unfinished, look.incomplete)),
    )


def left_out(run: StoredRun, refused: Sequence[Refusal]) -> StateError:
    """Return the error of an incomplete copy, as of other programs that copy many files."""
    count = "1 object" if len(refused) == 1 else f"{len(refused)} objects"
    return StateError(
        f"{count} of run '{run.name}' cannot be written to this disk; everything else is there.",
        hint=f"See who wrote them: gcloud storage ls --full --recursive gs://{run.bucket.name}/{run.paths.folder}",
    )


def check_folder(folder: Path, run: str) -> None:
    """Raise UsageError unless the folder is new, empty, or holds an earlier pull of this run."""
    download_folder.check_folder(folder, f"run '{run}'", lambda: _holds(folder, run))


def _holds(folder: Path, run: str) -> bool:
    try:
        data = read_file(folder, RECORD, LARGEST[Run] + 1)
    except (FileNotFoundError, NotAFileError):
        return False
    return decode(data, Run, str(folder / RECORD)).run == run
