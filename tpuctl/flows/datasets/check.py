"""Looking into a dataset in the bucket: whether it is what its manifest says, and its first examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

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
_MOST_NAMED = 5
_FIRST_PART = 1 << 18
"""Bytes fetched at a time for a few examples."""


@dataclass(frozen=True)
class Example:
    """One example, decoded."""

    split: str
    values: dict[str, Values]


def verify(bucket: Bucket, manifest: Manifest, *, deep: bool, report: Callable[[int, int], None]) -> None:
    """Compare every object with the manifest; `deep` also reads every record of every shard.

    `report` takes the files checked so far and their number. Raises StateError that names the first few
    objects that differ, and says how many do.
    """
    folder = manifest.ref.folder
    listed = {item.name.removeprefix(folder): item for item in bucket.objects(folder)}
    expected: dict[str, ShardEntry | FileEntry] = {entry.file: entry for entry in manifest.shards}
    expected |= manifest.files
    checked = 0

    def check(file: str) -> None:
        nonlocal checked
        entry = expected[file]
        _compare(file, entry, listed.get(file))
        if deep and isinstance(entry, ShardEntry):
            verify_shard(bucket.stream(listed[file]), entry)
        checked += 1
        report(checked, len(expected))

    report(0, len(expected))
    errors = [result.error for result in fanout(check, expected, width=_WIDTH) if result.error]
    if errors:
        raise _damaged(manifest, errors)


def head(bucket: Bucket, manifest: Manifest, *, split: str, count: int) -> list[Example]:
    """Return the first examples of a split (of the first one, where it is empty); raises UsageError."""
    name = split or next(iter(manifest.splits))
    if name not in manifest.splits:
        raise UsageError(
            f"The dataset '{manifest.name}' has no split '{name}'.",
            hint=f"One of {', '.join(manifest.splits)}.",
        )
    examples: list[Example] = []
    for entry in manifest.splits[name].shards:
        shard = bucket.stat(manifest.ref.folder + entry.file)
        if shard is None:
            raise NotFoundError(f"{entry.file} is missing.", hint="See: tpuctl data verify " + manifest.name)
        records = read_records(bucket.stream(shard, _FIRST_PART))
        examples += [Example(name, decode(record)) for record in islice(records, count - len(examples))]
        if len(examples) == count:
            break
    return examples


def read_vocabulary(bucket: Bucket, manifest: Manifest) -> Vocabulary | None:
    """Return the vocabulary of a dataset whose text became token ids, None for others."""
    tokens = manifest.source.options.tokens if manifest.source.options else None
    if tokens is None:
        return None
    return parse_vocabulary(bucket.read(manifest.ref.folder + VOCABULARY), tokens.kind, Path(VOCABULARY))


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
        hint=f"Upload it again: tpuctl data rm {manifest.ref}, then tpuctl data upload.",
        wrong=[error.message for error in errors],
    )
