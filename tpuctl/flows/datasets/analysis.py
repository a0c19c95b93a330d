"""Reads datasets in the bucket to say what they hold, and makes others of their records.

- Reads the records of a dataset in the bucket in their order, and works on some of them at once.
- Says what a dataset holds, from its records: classes, numbers, pictures, duplicates, leaks.
- Plans a dataset of the records of another: with other splits, or a sample of it.
- Says in what two datasets differ: features, classes, splits, and records by their content.
- Writes the records of a plan as files to look at: pictures in class folders, others as JSON Lines.

  The folder has a list of what a sample wrote there, and the next sample replaces those files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tpuctl.data.analysis.comparison import (
    Comparison,
    Duplicates,
    Fingerprints,
    column_fingerprints,
    compare,
    find_duplicates,
    hashes,
)
from tpuctl.data.analysis.contents import Contents, Moments, PictureSums, has_columns, measured
from tpuctl.data.analysis.redraw import draw_sample, label_fields, redraw, scan
from tpuctl.data.options import BadRecord, BadRecordsError, Options
from tpuctl.data.order import Members, Sample, parse_splits, sample_of
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.output.shards import shard_frames
from tpuctl.data.plan import DatasetPlan, SplitPlan, plan_members
from tpuctl.data.schema.features import Feature, Image, Label, example_kinds, feature_type
from tpuctl.data.source import Observations, Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tfrecord.column_decoding import ColumnDecoder
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.framing import Frames
from tpuctl.data.trees.objects import object_tree
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.datasets.head import read_vocabulary
from tpuctl.flows.datasets.plan import OpenBucket
from tpuctl.flows.download_folder import check_folder, filling
from tpuctl.flows.progress import Report
from tpuctl.local.confined_folder import NotAFileError, UnsafeNameError, local_parts, read_file
from tpuctl.local.staged_folder import StagedFolder

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


ReportRecords = Callable[[int, int], None]
"""Takes the records read so far and their number."""
Out = TypeVar("Out")

_PART = 4 << 20
_WIDTH = 2
"""Records worked on at once: decoders of pictures leave Python's lock."""
_BATCH, _BATCH_BYTES = 256, 16 << 20
"""Records that are held, and their bytes."""


def split_records(bucket: Bucket, manifest: Manifest, split: str) -> Iterator[bytes]:
    """Yield every record of a split; raises NotFoundError, StateError where a shard is not as uploaded."""
    for data, bounds in split_frames(bucket, manifest, split):
        for begin, end in bounds.tolist():
            yield data[begin:end]


def split_frames(bucket: Bucket, manifest: Manifest, split: str) -> Iterator[Frames]:
    """Yield the same many at a time, as `shard_frames`."""
    hint = f"See: tpuctl data verify {manifest.ref}"
    for entry in manifest.splits[split].shards:
        shard = bucket.stat(manifest.ref.folder + entry.file)
        if shard is None:
            raise NotFoundError(f"{entry.file} is missing.", hint=hint)
        count = 0
        stream = bucket.stream(shard, _PART)
        for frames in shard_frames(stream, manifest.file_format, shard.size, _PART):
            yield frames
            count += len(frames[1])
        if count != entry.records:
            difference = f"has {count} records, and its manifest says {entry.records}"
            raise StateError(f"{entry.file} {difference}.", hint=hint)


def in_parallel(work: Callable[[bytes], Out], records: Iterator[bytes]) -> Iterator[Out]:
    """Yield the result of each record in turn."""
    with ThreadPoolExecutor(_WIDTH, thread_name_prefix="record") as pool:
        for batch in _batches(records):
            yield from pool.map(work, batch)


def _batches(records: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


_MOST_SIZES = 3


@dataclass(frozen=True)
class PictureStats:
    """The pictures of a field of a split."""

    height: Moments
    width: Moments
    brightness: Moments
    """Of the mean of each picture, from 0 to 1."""
    channels: dict[int, tuple[Moments, ...]]
    """Number of channels -> each channel over all pixels, from 0 to 1."""
    sizes: tuple[tuple[int, int, int], ...]
    """The most frequent heights and widths, each with the number of pictures."""
    broken: int
    """Pictures that cannot be decoded."""


@dataclass(frozen=True)
class SplitStats:
    """One split."""

    name: str
    records: int
    """All records of the split."""
    read: int
    """Records that these figures are of."""
    bytes: int
    classes: dict[str, dict[str, int]]
    """Field of labels -> class -> records."""
    numbers: dict[str, Moments]
    """Field of numbers; of texts the characters, of tokens those that are no padding."""
    pictures: dict[str, PictureStats]


@dataclass(frozen=True)
class DatasetStats:
    """What a dataset holds."""

    ref: DatasetRef
    splits: tuple[SplitStats, ...]
    duplicates: Duplicates

    @property
    def is_sample(self) -> bool:
        """Whether only some of the records were read."""
        return any(split.read < split.records for split in self.splits)


def stats(
    bucket: Bucket, manifest: Manifest, report: ReportRecords, *, sample: int | None = None, seed: int = 0
) -> DatasetStats:
    """Read a dataset, or a random `sample` of so many records of each split.

    Raises NotFoundError, StateError and UsageError where a shard is not as uploaded.
    """
    splits = list(manifest.splits)
    total = sum(_most(entry.records, sample) for entry in manifest.splits.values())
    decoder = ColumnDecoder(example_kinds(manifest.features)) if has_columns(manifest.features) else None
    done = 0
    results = []
    with closing(Fingerprints()) as prints:
        for split in splits:
            contents = Contents(manifest.features)
            chosen = sample_of(manifest.splits[split].records, sample, seed)
            if decoder:
                counts = _add_frames(bucket, manifest, split, chosen, contents, prints, decoder)
            else:
                counts = _add_records(bucket, manifest, split, chosen, contents, prints)
            for count in counts:
                done += count
                report(done, total)
            results.append(_result(split, manifest, contents))
        return DatasetStats(manifest.ref, tuple(results), find_duplicates(prints, splits))


def _add_records(
    bucket: Bucket, manifest: Manifest, split: str, chosen: Sample, contents: Contents, prints: Fingerprints
) -> Iterator[int]:
    """Add the records of a sample one by one, and yield how many were added."""
    number = list(manifest.splits).index(split)
    has_pictures = any(isinstance(feature, Image) for feature in manifest.features.values())
    kept = chosen.filter(split_records(bucket, manifest, split))
    measure = partial(measured, features=manifest.features)
    for record in in_parallel(measure, kept) if has_pictures else map(measure, kept):
        contents.add(record)
        prints.add(record.fingerprint, record.looks, number, chosen.place(contents.records - 1))
        yield 1


def _add_frames(
    bucket: Bucket, manifest: Manifest, split: str, chosen: Sample, contents: Contents, prints: Fingerprints,
    decoder: ColumnDecoder,
) -> Iterator[int]:  # fmt: skip
    """Add the same records by columns, and yield how many were added."""
    number, first = list(manifest.splits).index(split), 0
    for data, bounds in split_frames(bucket, manifest, split):
        kept = chosen.within(first, len(bounds))
        begins, ends = bounds[kept].T
        columns = decoder.decode(data, begins, ends) if len(kept) else None
        if columns:
            contents.add_columns(columns)
            prints.add_all(column_fingerprints(data, columns, manifest.features), number, first + kept)
        else:
            for place, begin, end in zip(kept.tolist(), begins.tolist(), ends.tolist(), strict=True):
                record = measured(data[begin:end], manifest.features)
                contents.add(record)
                prints.add(record.fingerprint, 0, number, first + place)
        yield len(kept)
        first += len(bounds)
        if chosen.places is not None and first > chosen.places[-1]:
            return


def _most(records: int, sample: int | None) -> int:
    return records if sample is None else min(records, sample)


def _result(split: str, manifest: Manifest, contents: Contents) -> SplitStats:
    entry = manifest.splits[split]
    classes = {}
    for field, counts in contents.classes.items():
        feature = manifest.features[field]
        names = feature.classes if isinstance(feature, Label) else ()
        by_name = {name: counts[number] for number, name in enumerate(names)}
        others = {str(number): count for number, count in counts.items() if not 0 <= number < len(names)}
        classes[field] = by_name | others
    return SplitStats(
        split,
        entry.records,
        contents.records,
        entry.bytes,
        classes,
        {field: series.moments for field, series in contents.numbers.items()},
        {field: _pictures(sums) for field, sums in contents.pictures.items()},
    )


def _pictures(sums: PictureSums) -> PictureStats:
    return PictureStats(
        sums.heights.moments,
        sums.widths.moments,
        sums.brightness.moments,
        sums.channels,
        tuple((height, width, count) for (height, width), count in sums.sizes.most_common(_MOST_SIZES)),
        sums.broken,
    )


@dataclass(frozen=True)
class Origin:
    """A dataset in the bucket whose records are drawn from."""

    bucket: Bucket
    manifest: Manifest
    open_bucket: OpenBucket
    """Returns the objects of a bucket, to read them at any place."""

    @contextmanager
    def opened(self) -> Iterator[Source]:
        """Yield its records; the block's end releases them. Raises UsageError for ArrayRecord."""
        if self.manifest.file_format != "tfrecord":
            raise UsageError(
                f"{self.manifest.ref} is in ArrayRecord, which can be drawn from only on this machine.",
                hint="Upload its source again, with other splits or as TFRecord.",
                dataset=str(self.manifest.ref),
            )
        tree = object_tree(self.open_bucket(self.bucket.name), self.manifest.ref.folder.rstrip("/"))
        source = open_source(tree, "tfds", Options(), lambda scanned, total: None)
        try:
            yield source
        finally:
            source.close()

    def label(self, chosen: str | None) -> str:
        """Return the field whose classes keep their shares; empty for none. Raises UsageError."""
        labels = [name for name, feature in self.manifest.features.items() if isinstance(feature, Label)]
        return label_fields(labels, chosen)

    def next_version(self) -> DatasetRef:
        """Return the version after this one."""
        major, minor, _ = self.manifest.version.split(".")
        return DatasetRef(self.manifest.name, f"{major}.{int(minor) + 1}.0")


@contextmanager
def split_plan(
    origin: Origin, ref: DatasetRef, splits: str, report: ReportRecords, *, stratify: str | None = None,
    group_duplicates: bool = False, seed: int = 0,
) -> Iterator[DatasetPlan]:  # fmt: skip
    """Yield the plan of the same records in other splits: `train=0.8,test=0.2`.

    Each class of the field `stratify` keeps its share, by default those of the only label; of an empty name,
    none. Raises UsageError that names the option.
    """
    shares = parse_splits(splits)
    label = origin.label(stratify)
    with origin.opened() as source:
        drawn = redraw(source, shares, seed, scan(source, label, report, grouped=group_duplicates))
        yield _plan(origin, ref, source, drawn, seed)


@contextmanager
def sample_plan(
    origin: Origin, ref: DatasetRef, count: int, report: ReportRecords, *, seed: int = 0
) -> Iterator[DatasetPlan]:
    """Yield the plan of `count` random records, in which each split and class has its share."""
    with origin.opened() as source:
        drawn = draw_sample(source, count, seed, scan(source, origin.label(None), report, grouped=False))
        yield _plan(origin, ref, source, drawn, seed)


def _plan(origin: Origin, ref: DatasetRef, source: Source, drawn: list[Members], seed: int) -> DatasetPlan:
    if ref == origin.manifest.ref:
        raise UsageError(
            f"{ref} is the dataset itself.", hint="Name another version: --as NAME/VERSION.", dataset=str(ref)
        )
    made_with = origin.manifest.source.options
    options = Options(tokens=made_with.tokens if made_with else None)
    vocabulary = read_vocabulary(origin.bucket, origin.manifest)
    return plan_members(source, drawn, ref, seed=seed, options=options, vocabulary=vocabulary)


_MOST_NAMED = 5


@dataclass(frozen=True)
class Difference:
    """One fact that two datasets do not share; None where one of them has no such thing."""

    name: str
    """`feature image`, `classes`, `split train`."""
    a: str | None
    b: str | None


@dataclass(frozen=True)
class DatasetDiff:
    """In what dataset B differs from A."""

    a: DatasetRef
    b: DatasetRef
    facts: tuple[Difference, ...]
    records: Comparison

    @property
    def is_empty(self) -> bool:
        """Whether both hold the same records with the same features in the same splits."""
        records = self.records
        return not (self.facts or records.only_a or records.only_b or records.moved or records.changed)


def diff(bucket: Bucket, a: Manifest, b: Manifest, report: ReportRecords) -> DatasetDiff:
    """Read both datasets, and compare them; raises NotFoundError, StateError and UsageError as `stats`."""
    splits = sorted({*a.splits, *b.splits})
    with ExitStack() as stack:
        prints = [stack.enter_context(closing(Fingerprints())) for _ in (a, b)]
        done, total = 0, a.records + b.records
        for manifest, own in zip((a, b), prints, strict=True):
            work = partial(hashes, features=manifest.features)
            for split in manifest.splits:
                number = splits.index(split)
                records = in_parallel(work, split_records(bucket, manifest, split))
                for index, content in enumerate(records):
                    own.add(content, 0, number, index)
                    done += 1
                    report(done, total)
        return DatasetDiff(a.ref, b.ref, tuple(_facts(a, b)), compare(prints[0], prints[1], splits))


def _facts(a: Manifest, b: Manifest) -> list[Difference]:
    facts = []
    for name in dict.fromkeys((*a.features, *b.features)):
        first, second = a.features.get(name), b.features.get(name)
        if first != second:
            facts.append(Difference(f"feature {name}", _text(first, second), _text(second, first)))
    if a.classes != b.classes:
        facts.append(Difference("classes", _names(a.classes, b.classes), _names(b.classes, a.classes)))
    for name in dict.fromkeys((*a.splits, *b.splits)):
        counts = [manifest.splits[name].records if name in manifest.splits else None for manifest in (a, b)]
        if counts[0] != counts[1]:
            facts.append(Difference(f"split {name}", *(_records_text(count) for count in counts)))
    return facts


def _text(feature: Feature | None, other: Feature | None) -> str | None:
    """Return its type in words; all of it where the words are those of the other one, too."""
    if feature is None:
        return None
    words = feature_type(feature)
    return words if other is None or feature_type(other) != words else str(feature)


def _names(own: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return the number of classes, and those that the other dataset does not have."""
    known = set(others)
    more = [name for name in own if name not in known]
    named = ", ".join([*more[:_MOST_NAMED], *(["..."] if len(more) > _MOST_NAMED else [])])
    count = f"{len(own)} class{'es' * (len(own) != 1)}"
    return f"{count}, with {named}" if more else count


def _records_text(count: int | None) -> str | None:
    return None if count is None else f"{count} record{'s' * (count != 1)}"


_UNSAFE = re.compile(r"[^\w. -]|^\.+|(?<![. ])[. ]+$")
_LONGEST = 50
"""Characters: of four bytes each they fit a file's name, with a number."""
_ENDINGS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg"}
_LIST = (".tpuctl-sample",)
"""Names the files of the sample in a folder; JSON."""
_LARGEST_LIST = 64 << 20

Parts = tuple[str, ...]
File = tuple[Parts, Iterable[bytes]]
"""A path below the folder, and its content."""


def planned_files(plan: DatasetPlan, folder: Path) -> list[Path]:
    """Return the folders or files that `write_files` fills; raises UsageError for another's folder."""
    _check(folder)
    if _picture(plan.features):
        return [folder / split.name for split in plan.splits]
    return [folder / f"{split.name}.jsonl" for split in plan.splits]


def write_files(plan: DatasetPlan, folder: Path, report: Report) -> int:
    """Write every record below a folder, and return the number of files; those of a former sample go.

    Raises UsageError for a folder with something else, or that cannot be written.
    """
    with filling(folder, report, lambda: _check(folder)) as local:
        former = _listed(folder) or set()
        local.write(msgspec.json.encode(sorted(former)), _LIST)
        former |= local.placed_before()
        files = {_place(local, parts, content) for parts, content in _files(plan)}
        for parts in former - files:
            local.remove(parts)
        local.write(msgspec.json.encode(sorted(files)), _LIST)
    return len(files)


def _place(local: StagedFolder, parts: Parts, content: Iterable[bytes]) -> Parts:
    """Write a file, whose path one that is killed leaves to the next."""
    name = "/".join(parts)
    try:
        local_parts(name)
        key = sha256(name.encode()).hexdigest()
        with local.completing(key) as path, path.open("wb") as stream:
            stream.writelines(content)
        local.place(local.waiting(key), parts)
    except UnsafeNameError as error:
        raise StateError(f"{name} {error}.", hint="Make a dataset of it: --as NAME/VERSION.") from error
    except NotAFileError as error:
        raise UsageError(f"{name} {error}.", hint="Name another folder with --to.") from error
    return parts


def _check(folder: Path) -> None:
    check_folder(folder, "a sample", lambda: _listed(folder) is not None)


def _listed(folder: Path) -> set[Parts] | None:
    """Return the files of the sample that a folder has; None if it has none."""
    try:
        data = read_file(folder, *_LIST, _LARGEST_LIST)
        listed = msgspec.json.decode(data, type=list[tuple[str, ...]])
    except (FileNotFoundError, NotAFileError, ValueError):
        return None
    return {parts for parts in listed if _is_safe(parts)}


def _is_safe(parts: Parts) -> bool:
    try:
        return local_parts("/".join(parts)) == parts
    except UnsafeNameError:
        return False


def _files(plan: DatasetPlan) -> Iterator[File]:
    picture = _picture(plan.features)
    folders = ClassFolders(plan.features)
    for split in plan.splits:
        records = _records(plan, split)
        if not picture:
            yield (f"{split.name}.jsonl",), map(_line, records)
            continue
        for number, values in enumerate(records):
            data = next(iter(values.get(picture, [])), b"")
            content = data if isinstance(data, bytes) else b""
            ending = next((name for start, name in _ENDINGS.items() if content.startswith(start)), "bin")
            yield (split.name, *folders.parts(values), f"{number:06}.{ending}"), [content]


def _records(plan: DatasetPlan, split: SplitPlan) -> Iterator[Mapping[str, Values]]:
    for record in plan.source.read(split.members.indices(0, split.records), Observations()):
        if isinstance(record, BadRecord):
            raise BadRecordsError([record])
        yield decode(record)


def _picture(features: Mapping[str, Feature]) -> str:
    return next((name for name, feature in features.items() if isinstance(feature, Image)), "")


def _line(values: Mapping[str, Values]) -> bytes:
    def plain(value: object) -> object:
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    fields = {name: [plain(value) for value in items] for name, items in values.items()}
    row = {name: items[0] if len(items) == 1 else items for name, items in fields.items()}
    return msgspec.json.encode(row) + b"\n"


# Names a folder after each class: safe on a disk, and no two alike.


class ClassFolders:
    """The folder of each class.

    Of names that are alike, but for case or characters that a folder cannot have, the later has its number.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._labels = [name for name, feature in features.items() if isinstance(feature, Label)]
        self._names: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()
        for field, feature in features.items():
            for number, name in enumerate(feature.classes if isinstance(feature, Label) else ()):
                self._names[field, number] = self._free(_safe(name), number)

    def parts(self, values: Mapping[str, Values]) -> tuple[str, ...]:
        """Return the folder of a record's class; nothing without one."""
        for field in self._labels:
            number = next(iter(values.get(field, [])), None)
            if isinstance(number, int):
                if (field, number) not in self._names:
                    self._names[field, number] = self._free("", number)
                return (self._names[field, number],)
        return ()

    def _free(self, name: str, number: int) -> str:
        name = name or f"{number}"
        while _folded(name) in self._taken:
            name = f"{name}-{number}"
        self._taken.add(_folded(name))
        return name


def _safe(name: str) -> str:
    """Return a class's name as that of a folder, empty if it cannot be."""
    name = _UNSAFE.sub("_", name[:_LONGEST])
    try:
        return "/".join(local_parts(name))
    except UnsafeNameError:
        return ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
