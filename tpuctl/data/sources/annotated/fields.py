"""Turns the files of a field into its values: pictures by the rule of the dataset.

- Stores the values of each record beside its files, in a temporary file once they are many.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from tpuctl.data.files.listing import Listing, unreadable
from tpuctl.data.files.temp_files import RecordOffsets, TempFile
from tpuctl.data.images.header import ImageInfo, inspect_image
from tpuctl.data.images.survey import Survey
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Feature
from tpuctl.data.source import Indices, Observations, ScanProgress
from tpuctl.data.sources.folders import image_feature
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.errors import UsageError

_BATCH = 4096
"""Offsets held before they are stored."""


class ValueStore:
    """Values of records, in their order; grows by `add`, and is read after `finish`."""

    def __init__(self) -> None:
        self._file = TempFile()
        self._offsets = RecordOffsets()
        self._begins = [0]
        self._descriptor = -1
        self._count = 0
        self._order: Indices | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, values: Sequence[Value]) -> None:
        """Add the values of the next record."""
        self._file.append(_ENCODER.encode(values))
        self._begins.append(self._file.size)
        self._count += 1
        if len(self._begins) >= _BATCH:
            self._flush()

    def finish(self, order: Indices | None = None) -> None:
        """To be called once, after the last `add`; `order` says which of the added records is which."""
        self._order = order
        self._flush()
        self._offsets.finish()
        self._descriptor = self._file.finish()

    def read(self, indices: Indices) -> list[list[Value]]:
        """Return the values of these records."""
        added = indices if self._order is None else self._order[indices]
        spans = self._offsets.spans(added).tolist()
        return [_DECODER.decode(os.pread(self._descriptor, end - begin, begin)) for begin, end in spans]

    @property
    def mean_size(self) -> int:
        """Bytes of a record's values, on average."""
        return self._file.size // max(self._count, 1)

    def close(self) -> None:
        """Give the space back."""
        self._file.close()
        self._offsets.close()

    def _flush(self) -> None:
        self._offsets.extend(np.array(self._begins, np.int64))
        self._begins = []


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[list[Value]] = msgspec.msgpack.Decoder(list)


class Content(NamedTuple):
    """What a file becomes in a record."""

    value: Value
    height: int = 0
    """Of a picture."""
    width: int = 0


class MediaField(Protocol):
    """A field whose values are in files, one for each record."""

    name: str
    listing: Listing

    def feature(self, observations: Observations) -> Feature:
        """Return the feature, as far as the observations show it."""

    def slow(self, index: int) -> bool:
        """Tell whether a file takes long to convert."""

    def content(self, data: bytes) -> Content:
        """Return what a file becomes; raises InvalidImage."""

    def note(self, content: Content, observations: Observations) -> None:
        """Add what the feature needs of a record."""


class Pictures:
    """Pictures that follow one rule, which their headers decide."""

    def __init__(
        self, name: str, listing: Listing, options: Options, progress: ScanProgress, *, turns: bool = True
    ) -> None:
        self.name = name
        self.listing = listing
        self._survey = Survey(listing, progress)
        counts = self._survey.counts
        self.rule = msgspec.structs.replace(counts.rule(options.channels, options.resize), turns=turns)
        self.report = counts.report(self.rule)
        self.bad = self._survey.bad(self.rule)

    def feature(self, observations: Observations) -> Feature:
        """As `MediaField.feature`."""
        return image_feature(self.rule, observations, self.name)

    def slow(self, index: int) -> bool:
        """As `MediaField.slow`."""
        kind = self._survey.kind(index)
        return not self.rule.why_bad(kind) and bool(self.rule.size or self.rule.reasons(kind))

    def content(self, data: bytes) -> Content:
        """As `MediaField.content`."""
        final, info = self.rule.apply(data)
        return Content(final, info.height, info.width)

    def note(self, content: Content, observations: Observations) -> None:
        """As `MediaField.note`."""
        assert isinstance(content.value, bytes)
        _note(self.name, inspect_image(content.value), observations)


def unreadable_file(name: str, error: OSError) -> BadRecord:
    """Return the bad record for a file that cannot be read; raises UsageError if it was removed."""
    if isinstance(error, FileNotFoundError):
        raise unreadable(name, error) from error
    hint = "" if error.errno in (errno.EFBIG, errno.EIO) else "Check its permissions."
    return BadRecord(name, f"cannot be read: {error.strerror}", hint=hint)


def no_options(options: Options, what: str) -> None:
    """Raise UsageError for options of tables; `what` is the source: `A source of COCO`."""
    if options.types or options.label:
        raise UsageError(f"{what} says itself what its fields are.", hint="Run it without --type or --label.")


def _note(name: str, info: ImageInfo, observations: Observations) -> None:
    observations.note(f"{name} height", info.height)
    observations.note(f"{name} width", info.width)
    observations.note(f"{name} encoding", info.encoding)
