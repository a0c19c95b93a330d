"""Stores the values of each record beside its files, in a temporary file once they are many."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import numpy as np

from tpuctl.data.files.temp_files import RecordOffsets, TempFile
from tpuctl.data.source import Indices
from tpuctl.data.tfrecord.example_encoding import Value

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
