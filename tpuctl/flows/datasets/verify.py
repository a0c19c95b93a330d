"""Compares the objects of a dataset in the bucket with its manifest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tpuctl.data.output.manifest import FileEntry, Manifest, ShardEntry
from tpuctl.data.output.verify import verify_shard
from tpuctl.errors import StateError, TpuctlError, joined_hints
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

_WIDTH = 4
_MOST_NAMED = 5


def verify(bucket: Bucket, manifest: Manifest, *, deep: bool, report: Callable[[int, int], None]) -> None:
    """Compare every object with the manifest; `deep` also reads every record of every shard.

    `report` takes the files checked so far and their number. Raises StateError that names the first few
    objects that differ, and says how many do.
    """
    folder = manifest.ref.folder
    listed = {item.name.removeprefix(folder): item for item in bucket.objects(folder)}
    expected: dict[str, ShardEntry | FileEntry] = {entry.file: entry for entry in manifest.shards}
    expected |= manifest.files
    checked, counting = 0, threading.Lock()

    def check(file: str) -> None:
        nonlocal checked
        entry = expected[file]
        _compare(file, entry, listed.get(file))
        if deep and isinstance(entry, ShardEntry):
            verify_shard(bucket.stream(listed[file]), entry)
        with counting:
            checked += 1
            report(checked, len(expected))

    report(0, len(expected))
    errors = [result.error for result in fanout(check, expected, width=_WIDTH) if result.error]
    if errors:
        raise _damaged(manifest, errors)


def _compare(file: str, entry: ShardEntry | FileEntry, listed: Object | None) -> None:
    if listed is None:
        raise StateError(f"{file} is missing.")
    if difference := listed.content.difference(entry.content):
        field, actual, expected = difference
        raise StateError(f"{file} has {field} {actual}, and its manifest says {expected}.")


def _damaged(manifest: Manifest, errors: list[TpuctlError]) -> StateError:
    named = " ".join(error.message for error in errors[:_MOST_NAMED])
    more = f" And {len(errors) - _MOST_NAMED} more." if len(errors) > _MOST_NAMED else ""
    return StateError(
        f"The dataset {manifest.ref} is damaged: {named}{more}",
        hint=joined_hints(f"Remove it: tpuctl data rm {manifest.ref}", "Upload it again: tpuctl data upload"),
        wrong=[error.message for error in errors],
    )
