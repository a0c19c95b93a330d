"""Offers records of files and of the values beside them, by index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.images.ahead import Ahead
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.schema.features import Feature, example_kinds
from tpuctl.data.source import Indices, Observations, Origin, Part, Records, Source
from tpuctl.data.sources.annotated.fields import Content, MediaField, Pictures, unreadable_file
from tpuctl.data.sources.annotated.values import ValueStore
from tpuctl.data.tfrecord.example_encoding import Encoder, Value

_OVERHEAD = 60
"""Bytes of a record besides its files and values, about."""

Judge = Callable[[Sequence[Content], Sequence[Value]], str]
"""Called with the contents and the values of a record; returns what is wrong with it, empty for nothing."""


class Table(NamedTuple):
    """The values beside the files."""

    values: ValueStore
    """Of each record those of `features`, in their order; what follows them is for `judge`."""
    features: Mapping[str, Feature]
    splits: Sequence[tuple[str, int]]
    """Each split and its number of records, in the order of the records."""
    labels: NDArray[np.integer] | None = None
    supervised: tuple[str, str] | None = None
    judge: Judge = lambda contents, values: ""


class AnnotatedSource(Source):
    """Records with files and values; the files of the first field are converted ahead."""

    def __init__(self, kind: str, origin: Origin, fields: Sequence[MediaField], table: Table) -> None:
        self._media = tuple(fields)
        self._table = table
        self._ahead = Ahead()
        self._width = len(example_kinds(table.features))
        kinds = example_kinds({**self._media_features(Observations()), **table.features})
        self._encoder = Encoder(kinds)
        pictures = next((field for field in fields if isinstance(field, Pictures)), None)
        super().__init__(
            kind=kind,
            origin=origin,
            features=self.final_features(Observations()),
            supervised=table.supervised,
            labels=table.labels,
            parts=tuple(self._parts()),
            images=pictures.report if pictures else None,
            bad_images=pictures.bad if pictures else (),
        )

    def read(self, indices: Indices, observations: Observations) -> Records:
        first, *others = self._media
        files = zip(indices.tolist(), first.listing.read_each(indices), strict=True)
        slow = ((index, data, first.slow(index)) for index, data in files)
        read = self._ahead.map(lambda index, data: _content(first, index, data), slow)
        rest = [_contents(field, indices) for field in others]
        values = self._table.values.read(indices)
        for (_, content), row, *contents in zip(read, values, *rest, strict=True):
            yield self._record((content, *contents), row, observations)

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        return {**self._media_features(observations), **self._table.features}

    def close(self) -> None:
        self._ahead.close()
        self._table.values.close()

    def _record(
        self, contents: Sequence[Content | BadRecord], row: Sequence[Value], observations: Observations
    ) -> bytes | BadRecord:
        good: list[Content] = []
        for content in contents:
            if isinstance(content, BadRecord):
                return content
            good.append(content)
        if why := self._table.judge(good, row):
            return BadRecord(str(row[-1]), why)
        for field, content in zip(self._media, good, strict=True):
            field.note(content, observations)
        return self._encoder.encode([*(content.value for content in good), *row[: self._width]])

    def _media_features(self, observations: Observations) -> dict[str, Feature]:
        return {field.name: field.feature(observations) for field in self._media}

    def _parts(self) -> Iterator[Part]:
        """Yield the splits, with sizes estimated from those of the files."""
        sizes = np.sum([field.listing.sizes for field in self._media], axis=0)
        start, more = 0, self._table.values.mean_size + _OVERHEAD
        for split, count in self._table.splits:
            yield Part(split, count, int(np.sum(sizes[start : start + count])) + more * count)
            start += count


def _contents(field: MediaField, indices: Indices) -> Iterator[Content | BadRecord]:
    for index, data in zip(indices.tolist(), field.listing.read_each(indices), strict=True):
        yield _content(field, index, data)


def _content(field: MediaField, index: int, data: bytes | OSError) -> Content | BadRecord:
    if isinstance(data, OSError):
        return unreadable_file(field.listing.key(index), data)
    try:
        return field.content(data)
    except InvalidImage as error:
        return BadRecord(field.listing.key(index), str(error), hint=error.hint)
