"""Says what a dataset holds, from its records: classes, numbers, pictures, duplicates, leaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tpuctl.data.analysis.contents import Contents, PictureSums, has_columns, measured
from tpuctl.data.analysis.duplicates import Duplicates, find_duplicates
from tpuctl.data.analysis.fingerprints import Fingerprints, column_fingerprints
from tpuctl.data.analysis.moments import Moments
from tpuctl.data.order.sample import Sample, sample_of
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.features import Image, Label, example_kinds
from tpuctl.data.tfrecord.column_decoding import ColumnDecoder
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets.analysis.reading import ReportRecords, in_parallel, split_frames, split_records

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

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
        split, entry.records, contents.records, entry.bytes, classes,
        {field: series.moments for field, series in contents.numbers.items()},
        {field: _pictures(sums) for field, sums in contents.pictures.items()},
    )  # fmt: skip


def _pictures(sums: PictureSums) -> PictureStats:
    return PictureStats(
        sums.heights.moments,
        sums.widths.moments,
        sums.brightness.moments,
        sums.channels,
        tuple((height, width, count) for (height, width), count in sums.sizes.most_common(_MOST_SIZES)),
        sums.broken,
    )
