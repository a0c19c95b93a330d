"""Looking into a dataset in the bucket: whether it is what its manifest says, and its first examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import dataset
from tpuctl.data.output.manifest import FileEntry, Manifest, ShardEntry
from tpuctl.data.output.verify import verify_shard
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.framing import read_records
from tpuctl.data.tokens.vocabulary import FILE as VOCABULARY
from tpuctl.data.tokens.vocabulary import Vocabulary, parse_vocabulary
from tpuctl.errors import NotFoundError, StateError, TpuctlError, UsageError
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

_WIDTH = 4
_NAMED = 5
_FIRST_PART = 1 << 18
"""Bytes fetched at a time for a few examples."""


@dataclass(frozen=True)
class Example:
    """One example, decoded."""

    split: str
    values: dict[str, Values]


def verify(bucket: Bucket, manifest: Manifest, *, deep: bool, progress: Callable[[int, int], None]) -> None:
    """Compare every object with the manifest; `deep` also reads every record of every shard.

    Raises StateError that names the first few objects that differ, and says how many do.
    """
    folder = dataset(manifest.name, manifest.version)
    there = {one.name.removeprefix(folder): one for one in bucket.objects(folder)}
    expected: dict[str, ShardEntry | FileEntry] = {one.file: one for one in manifest.shards}
    expected |= manifest.files
    done = 0

    def one(file: str) -> None:
        nonlocal done
        entry = expected[file]
        _compare(file, entry, there.get(file))
        if deep and isinstance(entry, ShardEntry):
            verify_shard(bucket.stream(there[file]), entry)
        done += 1
        progress(done, len(expected))

    progress(0, len(expected))
    wrong = [result.error for result in fanout(one, expected, width=_WIDTH) if result.error]
    if wrong:
        raise _damaged(manifest, wrong)


def head(bucket: Bucket, manifest: Manifest, *, split: str, count: int) -> list[Example]:
    """Return the first examples of a split (of the first one, where it is empty); raises UsageError."""
    name = split or next(iter(manifest.splits))
    if name not in manifest.splits:
        raise UsageError(
            f"The dataset '{manifest.name}' has no split '{name}'.",
            hint=f"One of {', '.join(manifest.splits)}.",
        )
    found: list[Example] = []
    for entry in manifest.splits[name].shards:
        shard = bucket.stat(dataset(manifest.name, manifest.version) + entry.file)
        if shard is None:
            raise NotFoundError(f"{entry.file} is missing.", hint="See: tpuctl data verify " + manifest.name)
        records = read_records(bucket.stream(shard, _FIRST_PART))
        found += [Example(name, decode(one)) for one in islice(records, count - len(found))]
        if len(found) == count:
            break
    return found


def vocabulary(bucket: Bucket, manifest: Manifest) -> Vocabulary | None:
    """Return the vocabulary of a dataset whose text became token ids, None for others."""
    made = manifest.source.options.tokens if manifest.source.options else None
    if made is None:
        return None
    name = dataset(manifest.name, manifest.version) + VOCABULARY
    return parse_vocabulary(bucket.read(name), made.kind, Path(VOCABULARY))


def _compare(file: str, entry: ShardEntry | FileEntry, there: Object | None) -> None:
    if there is None:
        raise StateError(f"{file} is missing.")
    if difference := there.content.difference(entry.content):
        field, actual, expected = difference
        raise StateError(f"{file} has {field} {actual}, and its manifest says {expected}.")


def _damaged(manifest: Manifest, wrong: list[TpuctlError]) -> StateError:
    named = " ".join(one.message for one in wrong[:_NAMED])
    more = f" And {len(wrong) - _NAMED} more." if len(wrong) > _NAMED else ""
    return StateError(
        f"The dataset '{manifest.name}' {manifest.version} is damaged: {named}{more}",
        hint=f"Upload it again: tpuctl data rm {manifest.name}/{manifest.version}, then tpuctl data upload.",
        wrong=[one.message for one in wrong],
    )
