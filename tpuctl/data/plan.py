"""From a source to a dataset: `plan` reads and checks all of it, and the plan makes the files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.data.features import Feature
from tpuctl.data.manifest import ShardEntry
from tpuctl.data.publish import small_file_names, small_files
from tpuctl.data.readers import read_source
from tpuctl.data.shards import (
    DEFAULT_SIZE,
    MAX_SIZE,
    MIN_SIZE,
    Shard,
    ShardCount,
    choose_count,
    deal,
    fixed_count,
    framed_size,
    shard_file,
)
from tpuctl.data.source import Progress, Record, Source, check_keys, shuffled
from tpuctl.data.splits import parse_splits, split_records
from tpuctl.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")


Files = dict[str, bytes]


@dataclass(frozen=True)
class SplitPlan:
    """One split: its records in the order they are written, and its number of shards."""

    name: str
    members: Sequence[Record]
    sharding: ShardCount

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.members)

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return framed_size(self.members)


@dataclass(frozen=True)
class DatasetPlan:
    """All that an upload would make, and the way to make it."""

    name: str
    version: str
    seed: int
    source: Source
    splits: tuple[SplitPlan, ...]

    @property
    def records(self) -> int:
        """Records in all splits."""
        return sum(split.records for split in self.splits)

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return sum(split.bytes for split in self.splits)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label is the index of one."""
        return self.source.classes

    @property
    def features(self) -> dict[str, Feature]:
        """What each field of a record is."""
        return self.source.features

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all objects below the dataset's folder, in the order they are to be written."""
        return (*(shard.file for shard in self.shards()), *small_file_names(self.source))

    def shards(self) -> Iterator[Shard]:
        """Yield every shard, split after split; they may be produced in any order, or at the same time."""
        for split in self.splits:
            for index, members in enumerate(deal(split.members, split.sharding.count)):
                file = shard_file(self.name, split.name, index, split.sharding.count)
                yield Shard(file, split.name, self.source, members)

    def finish(self, results: Iterable[ShardEntry]) -> Files:
        """Return the small files by name, `manifest.json` last, to be written in this order.

        `results` are the entries of all shards, in any order. Raises UsageError if records came or went in
        the source meanwhile, ValueError if a shard is missing or is not the one planned.
        """
        check_keys(self.source)
        made = {entry.file: entry for entry in results}
        splits: dict[str, list[ShardEntry]] = {split.name: [] for split in self.splits}
        for shard in self.shards():
            entry = made.pop(shard.file, None)
            if entry is None or (entry.records, entry.bytes) != (shard.records, shard.bytes):
                raise ValueError(f"{shard.file} was not made as planned: {entry}")
            splits[shard.split].append(entry)
        if made:
            raise ValueError(f"not in the plan: {', '.join(sorted(made))}")
        return small_files(self.name, self.version, self.source, self.seed, splits)


def plan(
    source: Path,
    *,
    name: str,
    version: str = "1.0.0",
    splits: str | None = None,
    hosts: int = 1,
    shards: int | None = None,
    shard_size: int = DEFAULT_SIZE,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> DatasetPlan:
    """Read and check every record of `source` once, and decide on splits and shards.

    `splits` is `train=0.8,test=0.2`; `hosts` is how many TPU hosts will read the dataset; `shards`, for each
    split, overrules `shard_size` (bytes). Raises UsageError that names the option, or the file in the source.
    """
    _check_name(name)
    _check_version(version)
    _check_shard_size(shard_size)
    _check_hosts(hosts)
    shares = parse_splits(splits) if splits else None
    found = read_source(source, progress)
    drawn = split_records(found.records, shares, seed)
    planned = [
        SplitPlan(split, shuffled(records, seed, "shard"), _count(records, split, hosts, shards, shard_size))
        for split, records in drawn.items()
    ]
    return DatasetPlan(name, version, seed, found, tuple(planned))


def _count(records: Sequence[Record], split: str, hosts: int, shards: int | None, target: int) -> ShardCount:
    if shards is not None:
        return fixed_count(shards, len(records), hosts=hosts, split=split)
    return choose_count(len(records), framed_size(records), hosts=hosts, target=target)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:100]
        raise UsageError(
            f"'{name}' cannot be the name of a dataset.",
            hint="Small letters, digits and _, a letter first, at most 100"
            + (f": for instance {better}." if better else "."),
            name=name,
        )


def _check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise UsageError(
            f"'{version}' cannot be the version of a dataset.",
            hint="Three numbers without leading zeros, such as 1.0.0.",
            version=version,
        )


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
