"""Reads what `save_to_disk` of `datasets` writes: Arrow files, `state.json`, `dataset_dict.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuctl.data.files.source_files import chosen_files
from tpuctl.data.files.temp_files import CachedSource
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress
from tpuctl.data.sources.names import SAVED_DICT, SAVED_STATE
from tpuctl.data.sources.parquet_files import ParquetTable, table_source
from tpuctl.data.sources.registry import longest_text
from tpuctl.data.sources.tfds_folder import read_json
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    import pyarrow


import struct

_KIND, _HEADER = 1, 2
"""Fields of a message."""
_DICTIONARY, _BATCH = 2, 3
"""Kinds of messages that have buffers."""
_DATA = 1
"""Field of a dictionary: its batch."""
_COMPRESSION = 3
"""Field of a batch."""
_SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_BATCH_BYTES, _LEAST_ROWS, _MOST_ROWS = 2 << 20, 16, 8192
"""Size of rows in memory, about; how many there are at least and at most."""
_MOST_TEXT = 1 << 26
"""Bytes of the texts that rows take of dictionaries, at most, unless one row takes more."""
_MEASURED = 200
"""Rows that are encoded to estimate the size of all."""


def read_saved(tree: Tree, options: Options, progress: ScanProgress) -> CachedSource:
    """Return the dataset that was saved to a folder, or the splits of several; raises UsageError."""
    entry = tree.look(SAVED_DICT)
    splits = read_json(tree, SAVED_DICT).get("splits") if entry else [""]
    if not isinstance(splits, list) or not all(map(_is_split, splits if entry else ())):
        raise _strange(SAVED_DICT)
    files = [(split, file) for split in splits for file in _data_files(tree, split)]
    if not files:
        raise _strange(SAVED_STATE)
    return table_source("saved", SavedTable(chosen_files(tree, files)), tree.name, options, progress)


class SavedTable(ParquetTable):
    """Arrow files, each a stream of batches."""

    format = "an Arrow file"

    def schema_of(self, number: int) -> pyarrow.Schema:
        """As `ParquetTable.schema_of`."""
        with self._stream(number) as stream:
            return stream.schema

    def count(self, number: int) -> int:
        """As `ParquetTable.count`: every batch is looked at."""
        self._check_packed(number)
        rows = 0
        for batch in self._whole(number):
            rows += batch.num_rows
            for name, column in zip(self.names, batch.columns, strict=True):
                if column.null_count:
                    self.with_nulls.add(name)
        return rows

    def batches(self, number: int, names: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """As `ParquetTable.batches`."""
        for batch in self._whole(number):
            chosen = batch.select([*names])
            step = max(_BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1), _LEAST_ROWS)
            step = min(step, _MOST_ROWS, max(_MOST_TEXT // max(_repeated_text(chosen), 1), 1))
            for start in range(0, chosen.num_rows, step):
                yield chosen.slice(start, step)

    def samples(self, names: Sequence[str]) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        """As `ParquetTable.samples`: the first rows of each file."""
        for number in range(len(self.files)):
            for batch in islice(self.batches(number, names), 1):
                yield number, batch.slice(0, _MEASURED)

    def _whole(self, number: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches as they were written; each is validated, since Arrow believes its offsets."""
        with self._stream(number) as stream, self.named(number):
            for batch in stream:
                batch.validate(full=True)
                if batch.num_rows > _MOST_ROWS + 8 * batch.nbytes:
                    raise self._damaged(number, f"a batch has {batch.num_rows} rows in {batch.nbytes} bytes")
                yield batch

    def _check_packed(self, number: int) -> None:
        """Raise UsageError for batches that are compressed: Arrow unpacks them to any size."""
        import pyarrow as pa  # noqa: PLC0415  only for Arrow

        with self._file(number) as file, self.named(number):
            for message in pa.ipc.MessageReader.open_stream(file):
                if is_packed(message.metadata.to_pybytes()):
                    raise self._damaged(number, "it is compressed, as save_to_disk writes none")

    @contextmanager
    def _stream(self, number: int) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  only for Arrow

        with self._file(number) as file, pa.ipc.open_stream(file) as stream:
            yield stream

    @contextmanager
    def _file(self, number: int) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  only for Arrow

        with self.named(number):
            file = self.files.by_path_or_stream(number)
            opened = pa.memory_map(str(file)) if isinstance(file, Path) else pa.PythonFile(file, "r")
            with opened:
                yield opened


def _repeated_text(batch: pyarrow.RecordBatch) -> int:
    """Return the bytes of the longest texts of a row that are in dictionaries: each is held once."""
    import pyarrow as pa  # noqa: PLC0415  only for Arrow

    return sum(longest_text(column) for column in batch.columns if isinstance(column, pa.DictionaryArray))


def _data_files(tree: Tree, split: str) -> Iterator[str]:
    folder = f"{split}/" if split else ""
    state = read_json(tree, f"{folder}{SAVED_STATE}")
    if state.get("_indices_data_files"):
        raise UsageError(
            f"'{folder}{SAVED_STATE}' has indices of rows, which old versions of datasets wrote.",
            hint="Save it again with a current version: load_from_disk(FOLDER).save_to_disk(OTHER).",
            file=f"{folder}{SAVED_STATE}",
        )
    listed = state.get("_data_files")
    for item in listed if isinstance(listed, list) else ():
        name = item.get("filename") if isinstance(item, dict) else None
        if not isinstance(name, str) or "/" in name or not name.endswith(".arrow"):
            raise _strange(f"{folder}{SAVED_STATE}")
        yield f"{folder}{name}"


def _is_split(name: object) -> bool:
    return isinstance(name, str) and bool(_SPLIT.fullmatch(name))


def _strange(file: str) -> UsageError:
    return UsageError(
        f"'{file}' is not in the form that save_to_disk writes.", hint="Save the dataset again.", file=file
    )


# Tells of a message of Arrow's streams whether its buffers are compressed, before they are unpacked.
#
# A message is a table of FlatBuffers (Message.fbs of Arrow): a table begins with how far before it its list
# of offsets is, which has two sizes and an offset for each field.


def is_packed(message: bytes) -> bool:
    """Return whether a message, which Arrow has verified, is a compressed batch or dictionary."""
    table = _target(message, 0)
    kind = _field(message, table, _KIND)
    if not kind or message[kind] not in (_DICTIONARY, _BATCH):
        return False
    batch = _target(message, _field(message, table, _HEADER))
    if message[kind] == _DICTIONARY:
        batch = _target(message, _field(message, batch, _DATA))
    return bool(_field(message, batch, _COMPRESSION))


def _target(message: bytes, at: int) -> int:
    """Return where that is to which an offset points."""
    return at + int(struct.unpack_from("<I", message, at)[0])


def _field(message: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0 where it has none."""
    offsets = table - struct.unpack_from("<i", message, table)[0]
    (size,) = struct.unpack_from("<H", message, offsets)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", message, offsets + place) if place < size else (0,)
    return table + int(offset) if offset else 0
