"""Plans a dataset: lists the records of a source, and decides on splits, shards and files."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from tpuctl.bucket_objects import ObjectName
from tpuctl.data.images.header import library_versions
from tpuctl.data.options import BadRecord, BadRecordsError, Options
from tpuctl.data.order import Members, parse_splits, split_records
from tpuctl.data.output.manifest import FileFormat
from tpuctl.data.output.metadata_files import classes_of, small_file_names, small_files
from tpuctl.data.output.shards import (
    DEFAULT_SIZE,
    MAX_SIZE,
    MIN_SIZE,
    Shard,
    ShardCount,
    ShardResult,
    bounds,
    choose_count,
    fixed_count,
    framed_size,
    readable_size,
    shard_file,
    writer_version,
)
from tpuctl.data.schema.features import Feature
from tpuctl.data.source import Observations, ScanProgress, Source, closed_on_error
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tokens import Vocabulary, check_tokens, tokenized
from tpuctl.data.trees.tree import Tree
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError

Files = dict[str, bytes]

LAYOUT = 2
"""Version of the way in which records become shards: a staged shard of another version is not used."""

_SEARCHED = 1 << 10
"""Records that are read between two answers of `search`."""


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
    """All splits, shards and files that an upload writes."""

    name: str
    version: str
    seed: int
    options: Options
    source: Source
    splits: tuple[SplitPlan, ...]
    vocabulary: Vocabulary | None = None
    """That of a tokenized source."""
    file_format: FileFormat = "tfrecord"

    @property
    def ref(self) -> DatasetRef:
        """Name and version."""
        return DatasetRef(self.name, self.version)

    @property
    def records(self) -> int:
        """Records in all splits, the bad ones counted too: they are found at the conversion."""
        return sum(split.records for split in self.splits)

    @property
    def bytes(self) -> int:
        """Bytes of all shards; an estimate unless `exact`."""
        return sum(split.bytes for split in self.splits)

    @property
    def exact(self) -> bool:
        """Whether `bytes` is exact if no record is bad."""
        return self.source.exact and self.file_format == "tfrecord"

    def require_good(self, *, skip_bad: bool) -> None:
        """Raise BadRecordsError for images that are bad by their headers, unless bad records are skipped."""
        report, bad = self.source.images, self.source.bad_images
        if report and bad and not skip_bad:
            raise BadRecordsError(bad, at_least=report.bad > len(bad))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label is the index of one."""
        return classes_of(self.source, self.source.features)

    @property
    def features(self) -> Mapping[str, Feature]:
        """The feature of each field, as far as known before the conversion."""
        return self.source.features

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all objects below the dataset's folder, in the order they are to be written."""
        return (*(shard.file for shard in self.shards()), *small_file_names(self.source, self.vocabulary))

    @property
    def identity(self) -> str:
        """SHA-256 of all that decides on the bytes of every shard, besides its own records.

        Among it are the versions of what converts pictures, splits texts into words and writes ArrayRecord:
        a conversion that is resumed after an upgrade makes its shards again.
        """
        options = msgspec.structs.replace(self.options, channels=None)  # the features have what came of it
        facts = (LAYOUT, self.source.kind, dict(self.features), options, self.seed)
        vocabulary = (self.vocabulary.sha256, unicodedata.unidata_version) if self.vocabulary else ()
        libraries = library_versions() if self.source.images else ()
        writer = writer_version(self.file_format)
        return sha256(msgspec.json.encode((*facts, *vocabulary, *libraries, *writer))).hexdigest()

    def shards(self) -> Iterator[Shard]:
        """Yield every shard, split after split; they may be written in any order, or at the same time."""
        identity = self.identity
        for split in self.splits:
            count = split.sharding.count
            for index, (start, stop) in enumerate(pairwise(bounds(split.records, count))):
                file = shard_file(self.name, split.name, index, count, self.file_format)
                yield Shard(
                    file, split.name, self.source, split.members, start, stop, identity, self.file_format
                )

    def search(self) -> Iterator[tuple[int, list[BadRecord]]]:
        """Read the source in its own order; yield the number of records read, and the latest bad ones."""
        for start in range(0, self.records, _SEARCHED):
            end = min(start + _SEARCHED, self.records)
            records = self.source.read(np.arange(start, end, dtype=np.int64), Observations())
            yield end, [record for record in records if isinstance(record, BadRecord)]

    def finish(self, results: Iterable[ShardResult]) -> Files:
        """Return the small files by name, `manifest.json` last, to be written in this order.

        `results` are those of all shards, in any order. Raises UsageError if the source has changed since the
        plan or no record is valid, ValueError if a shard is missing or is not one planned.
        """
        self.source.check()
        by_file = {result.entry.file: result for result in results}
        splits: dict[str, list[ShardResult]] = {split.name: [] for split in self.splits}
        for shard in self.shards():
            result = by_file.pop(shard.file, None)
            if result is None or result.entry.records + result.skipped != shard.records:
                raise ValueError(f"{shard.file} was not made as planned: {result}")
            splits[shard.split].append(result)
        if by_file:
            raise ValueError(f"not in the plan: {', '.join(sorted(by_file))}")
        for split, of_split in splits.items():
            if not sum(result.entry.records for result in of_split):
                raise UsageError(
                    f"All records of the split '{split}' are bad: the first, {of_split[0].bad[0]}.",
                    hint="Nothing was published.",
                    split=split,
                )
        return small_files(
            self.name, self.version, self.source, self.seed, self.options, splits, self.vocabulary,
            # a manifest leaves the default out only if it is the same object, which it is not in a worker
            self.file_format if self.file_format != "tfrecord" else "tfrecord",
        )  # fmt: skip


def plan(
    source: Path | Tree,
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
    file_format: FileFormat = "tfrecord",
    headers: bytes = b"",
    progress: ScanProgress = lambda scanned, total: None,
) -> DatasetPlan:
    """List the records of `source`, and decide on splits and shards; the records are read at the conversion.

    `kind` is a key of `READERS`, else inferred from the names of files; `splits` is `train=0.8,test=0.2`;
    `hosts` is how many TPU hosts will read the dataset; `shards`, for each split, overrules `shard_size`
    (bytes). `headers` are `Source.headers`, where the source was planned before. With `options.tokens` and
    no `vocabulary`, one is learnt: that reads the training split once.
    Raises UsageError that names the option or the bad records, ConfigError without what writes the format;
    the caller closes the plan's `source`.
    """
    DatasetRef(name, version).check()
    writer_version(file_format)
    _check_shard_size(shard_size)
    _check_hosts(hosts)
    if options.tokens:
        check_tokens(options.tokens)
    shares = parse_splits(splits) if splits else None
    listed = open_source(source, kind, options, progress, headers)
    with closed_on_error(listed):
        if listed.bad and not (skip_bad and any(part.records for part in listed.parts)):
            raise BadRecordsError(listed.bad)
        if options.tokens:
            training = split_records(listed, shares, seed)
            listed, tokens, vocabulary = tokenized(listed, options.tokens, vocabulary, training, progress)
            options = msgspec.structs.replace(options, tokens=tokens)
        planned = [
            SplitPlan(members, _count(members, hosts, shards, shard_size))
            for members in split_records(listed, shares, seed)
        ]
        _check_files(small_file_names(listed, vocabulary))
    return DatasetPlan(name, version, seed, options, listed, tuple(planned), vocabulary, file_format)


def plan_members(
    source: Source, members: Iterable[Members], ref: DatasetRef, *, seed: int, options: Options,
    vocabulary: Vocabulary | None,
) -> DatasetPlan:  # fmt: skip
    """Return the plan of splits that are drawn already; raises UsageError for a name that cannot be."""
    ref.check()
    planned = [SplitPlan(split, _count(split, 1, None, DEFAULT_SIZE)) for split in members]
    _check_files(small_file_names(source, vocabulary))
    return DatasetPlan(ref.name, ref.version, seed, options, source, tuple(planned), vocabulary)


def _count(members: Members, hosts: int, shards: int | None, target: int) -> ShardCount:
    if shards is not None:
        return fixed_count(shards, len(members), hosts=hosts, split=members.name)
    return choose_count(len(members), framed_size(members), hosts=hosts, target=target)


def _check_files(names: Iterable[str]) -> None:
    """Raise UsageError for a name that no reader of the manifest would take: some have that of a column."""
    for name in names:
        try:
            msgspec.convert(name, ObjectName)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"A dataset cannot have the file {name}, which is named after a column.",
                hint="Rename the column: without control characters.",
                file=name,
            ) from error


def _check_hosts(hosts: int) -> None:
    if hosts < 1:
        raise UsageError(f"{hosts} hosts cannot read a dataset.", hint="Give one or more.", hosts=hosts)


def _check_shard_size(size: int) -> None:
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(
            f"A shard of {readable_size(size)} is out of bounds.",
            hint=f"From {readable_size(MIN_SIZE)} to {readable_size(MAX_SIZE)}; --shards gives their number.",
            shard_size=size,
        )
