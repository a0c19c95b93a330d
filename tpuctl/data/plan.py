"""From a source to a dataset: `plan` lists its records, and the plan makes the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.options import Options
from tpuctl.data.order.splits import Members, parse_splits, split_records
from tpuctl.data.output.metadata_files import classes_of, small_file_names, small_files
from tpuctl.data.output.shard_counts import (
    DEFAULT_SIZE,
    MAX_SIZE,
    MIN_SIZE,
    ShardCount,
    bounds,
    choose_count,
    fixed_count,
    framed_size,
    shard_file,
)
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.schema.features import Feature
from tpuctl.data.source import Observations, ScanProgress, Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tokens.tokenizing import check_tokens, tokenized
from tpuctl.data.tokens.vocabulary import Vocabulary
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError

Files = dict[str, bytes]

LAYOUT = 1
"""Number of the way in which records become shards: with another, no shard made before is kept."""

_SEARCHED = 1 << 10


@dataclass(frozen=True)
class SplitPlan:
    """One split: its records in the order they are written, and its number of shards."""

    members: Members
    sharding: ShardCount

    @property
    def name(self) -> str:
        """Name of the split."""
        return self.members.name

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.members)

    @property
    def bytes(self) -> int:
        """Bytes of all shards; an estimate where the plan is not exact."""
        return framed_size(self.members)


@dataclass(frozen=True)
class DatasetPlan:
    """All that an upload would make, and the way to make it."""

    name: str
    version: str
    seed: int
    options: Options
    source: Source
    splits: tuple[SplitPlan, ...]
    vocabulary: Vocabulary | None = None
    """Where texts became token ids."""

    @property
    def ref(self) -> DatasetRef:
        """Name and version."""
        return DatasetRef(self.name, self.version)

    @property
    def records(self) -> int:
        """Records in all splits, the bad ones counted too: no file has been opened yet."""
        return sum(split.records for split in self.splits)

    @property
    def bytes(self) -> int:
        """Bytes of all shards; an estimate unless `exact`."""
        return sum(split.bytes for split in self.splits)

    @property
    def exact(self) -> bool:
        """Whether `bytes` is what the conversion will give if no record is bad."""
        return self.source.exact

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label is the index of one."""
        return classes_of(self.source, self.source.features)

    @property
    def features(self) -> Mapping[str, Feature]:
        """What each field of a record is, as far as it is known before the conversion."""
        return self.source.features

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all objects below the dataset's folder, in the order they are to be written."""
        return (*(shard.file for shard in self.shards()), *small_file_names(self.source, self.vocabulary))

    @property
    def identity(self) -> str:
        """What decides on the bytes of every shard, besides its own records."""
        described = (LAYOUT, self.source.kind, dict(self.features), self.options, self.seed)
        tokens = (self.vocabulary.sha256,) if self.vocabulary else ()
        return sha256(msgspec.json.encode((*described, *tokens))).hexdigest()

    def shards(self) -> Iterator[Shard]:
        """Yield every shard, split after split; they may be produced in any order, or at the same time."""
        identity = self.identity
        for split in self.splits:
            count = split.sharding.count
            for index, (start, stop) in enumerate(pairwise(bounds(split.records, count))):
                file = shard_file(self.name, split.name, index, count)
                yield Shard(file, split.name, self.source, split.members, start, stop, identity)

    def search(self) -> Iterator[tuple[int, list[BadRecord]]]:
        """Read the source in its own order; yield how many records were read so far, and what was bad now."""
        for start in range(0, self.records, _SEARCHED):
            end = min(start + _SEARCHED, self.records)
            read = self.source.read(np.arange(start, end, dtype=np.int64), Observations())
            yield end, [one for one in read if isinstance(one, BadRecord)]

    def finish(self, notes: Iterable[ShardResult]) -> Files:
        """Return the small files by name, `manifest.json` last, to be written in this order.

        `notes` are those of all shards, in any order. Raises UsageError if the source has changed since the
        plan or no record was left, ValueError if a shard is missing or is not one planned.
        """
        self.source.check()
        made = {note.entry.file: note for note in notes}
        splits: dict[str, list[ShardResult]] = {split.name: [] for split in self.splits}
        for shard in self.shards():
            note = made.pop(shard.file, None)
            if note is None or note.entry.records + note.skipped != shard.records:
                raise ValueError(f"{shard.file} was not made as planned: {note}")
            splits[shard.split].append(note)
        if made:
            raise ValueError(f"not in the plan: {', '.join(sorted(made))}")
        for split, found in splits.items():
            if not sum(note.entry.records for note in found):
                raise UsageError(
                    f"All records of the split '{split}' are bad: the first, {found[0].bad[0]}.",
                    hint="Nothing was published.",
                    split=split,
                )
        return small_files(
            self.name, self.version, self.source, self.seed, self.options, splits, self.vocabulary
        )


def plan(
    source: Path,
    *,
    name: str,
    version: str = "1.0.0",
    kind: str | None = None,
    options: Options = Options(),  # noqa: B008  frozen
    splits: str | None = None,
    hosts: int = 1,
    shards: int | None = None,
    shard_size: int = DEFAULT_SIZE,
    seed: int = 0,
    skip_bad: bool = False,
    vocabulary: Vocabulary | None = None,
    progress: ScanProgress = lambda done, total: None,
) -> DatasetPlan:
    """List the records of `source`, and decide on splits and shards; the records are read at the conversion.

    `kind` is a key of `READERS`, else inferred from the names of files; `splits` is `train=0.8,test=0.2`;
    `hosts` is how many TPU hosts will read the dataset; `shards`, for each split, overrules `shard_size`
    (bytes). With `options.tokens` and no `vocabulary`, one is made: that reads the training split once.
    Raises UsageError that names the option, or what is bad in the source; the caller closes `source` at last.
    """
    DatasetRef(name, version).check()
    _check_shard_size(shard_size)
    _check_hosts(hosts)
    if options.tokens:
        check_tokens(options.tokens)
    shares = parse_splits(splits) if splits else None
    found = open_source(source, kind, options, progress)
    with ExitStack() as on_failure:
        on_failure.callback(found.close)
        if found.bad and not (skip_bad and any(part.records for part in found.parts)):
            raise BadRecordsError(found.bad)
        if options.tokens:
            before = split_records(found, shares, seed)
            found, asked, vocabulary = tokenized(found, options.tokens, vocabulary, before, progress)
            options = msgspec.structs.replace(options, tokens=asked)
        planned = [
            SplitPlan(members, _count(members, hosts, shards, shard_size))
            for members in split_records(found, shares, seed)
        ]
        on_failure.pop_all()
    return DatasetPlan(name, version, seed, options, found, tuple(planned), vocabulary)


def _count(members: Members, hosts: int, shards: int | None, target: int) -> ShardCount:
    if shards is not None:
        return fixed_count(shards, len(members), hosts=hosts, split=members.name)
    return choose_count(len(members), framed_size(members), hosts=hosts, target=target)


def _check_hosts(hosts: int) -> None:
    if hosts < 1:
        raise UsageError(f"{hosts} hosts cannot read a dataset.", hint="Ask for one or more.", hosts=hosts)


def _check_shard_size(size: int) -> None:
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(
            f"A shard of {size / 1e6:.3g} MB is out of bounds.",
            hint=f"From {MIN_SIZE / 1e6:.3g} to {MAX_SIZE / 1e6:.4g} MB; to fix their number, give --shards.",
            shard_size=size,
        )
