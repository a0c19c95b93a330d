"""Records what a run has left in the bucket, by checksum, when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import RunPaths
from tpuctl.errors import ConflictError, TpuctlError
from tpuctl.flows.runs.stored_attempt import find_record
from tpuctl.object_content import MD5
from tpuctl.provenance import ResultFile, Results, digest_of, first_that_fit
from tpuctl.runs import Verdict, encode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


def read(bucket: Bucket, paths: RunPaths) -> Results | None:
    """Return results.json of a run, None before it is written; raises BadObjectError when it is no record."""

    def check(record: Results) -> None:
        if record.run != paths.run:
            raise ValueError(f"it is of run {record.run!r}")

    return find_record(bucket, paths.results, Results, check)


def write(bucket: Bucket, paths: RunPaths, verdict: Verdict) -> Results | None:
    """Write the results of a run that has ended with this verdict, and return them.

    None where another attempt may follow, and where the bucket takes nothing: the run ends also without its
    results' record, and `ensured` writes it later. A record of an earlier verdict is replaced.
    """
    if verdict.may_be_followed:
        return None
    try:
        results = listed(bucket, paths, verdict)
        _write(bucket, paths.results, encode(results))
    except ConflictError:
        return read(bucket, paths)  # another reader was first
    except TpuctlError:
        return None
    return results


def _write(bucket: Bucket, name: str, data: bytes) -> None:
    """Write an object over the one that there may be; raises ConflictError when another process did so."""
    try:
        bucket.create(name, data)
    except ConflictError:
        item = bucket.stat(name)
        if item is None:
            raise
        bucket.replace(item, data)


def ensured(bucket: Bucket, paths: RunPaths, verdict: Verdict | None) -> Results | None:
    """Return the results of a run, after writing them if who ended it was killed before that.

    None for a run that has not ended. Runs of earlier versions get theirs so, too: `listed` says when.
    """
    results = read(bucket, paths)
    if results is None and verdict:
        return write(bucket, paths, verdict)
    return results


def listed(bucket: Bucket, paths: RunPaths, verdict: Verdict) -> Results:
    """Return the results as the bucket lists them now."""
    folders = (paths.checkpoints, paths.outputs, paths.tensorboard)
    objects = bucket.objects(paths.folder, start=folders[0], more=MD5)  # logs come before
    files = [
        ResultFile(
            item.name.removeprefix(paths.folder),
            item.size,
            item.content.crc32c or None,
            item.md5,
            item.generation,
        )
        for item in objects
        if item.name.startswith(folders) and not item.name.endswith("/")
    ]
    shown = tuple(first_that_fit(files))
    return Results(
        paths.run, verdict.attempt, verdict.outcome, clock.iso(bucket.now()), len(files),
        sum(file.bytes for file in files), digest_of(files), shown, len(files) - len(shown),
    )  # fmt: skip
