"""Takes the values of Arrow's arrays from their buffers, exactly those that their cells have one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.tables.columns import MOST_FLOAT, Column, InvalidValue
from tpuctl.data.tfrecord.example_encoding import Values
from tpuctl.data.tfrecord.texts import Texts

if TYPE_CHECKING:
    import pyarrow

_PART = 4 << 20
"""Bytes of texts that are converted at once."""


def with_arrays(column: Column[object], kind: str) -> Column[object]:
    """Return a column that converts whole arrays, too: of a type in `features.TYPES`, from `typed_cells`."""
    quick = _QUICK[kind]

    def convert_many(cells: pyarrow.Array) -> Values:
        values = quick(cells)
        return [*map(column.convert, cells.to_pylist())] if values is None else values

    return column._replace(convert_many=convert_many)


def array_texts(cells: pyarrow.Array) -> Texts | None:
    """Return the bytes of texts, none for a null; None for an array of another type, or damaged texts."""
    import pyarrow as pa  # noqa: PLC0415  only for Parquet

    if isinstance(cells, pa.DictionaryArray):
        return _of_dictionary(cells)
    offset_type = _OFFSETS.get(str(cells.type))
    if offset_type is None:
        return None
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        return None
    _, offsets, data = cells.buffers()
    bounds = np.frombuffer(offsets, offset_type)[cells.offset : cells.offset + len(cells) + 1].astype(
        np.int64
    )
    sizes = np.diff(bounds)
    if cells.null_count:
        sizes[_nulls(cells)] = 0
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return Texts(content, bounds[:-1], sizes)


def add_classes(collector: ClassCollector, cells: pyarrow.Array) -> None:
    """Add the values of a column that is the label."""
    import pyarrow as pa  # noqa: PLC0415  only for Parquet

    if isinstance(cells, pa.DictionaryArray) and not cells.null_count and not cells.dictionary.null_count:
        numbers, ranks = np.unique(cells.indices.to_numpy(), return_inverse=True)
        collector.add_ranked(cells.dictionary.take(pa.array(numbers)).to_pylist(), ranks)
    elif str(cells.type) in _WHOLE and not cells.null_count:
        values, ranks = np.unique(cells.to_numpy(), return_inverse=True)
        collector.add_ranked(values.tolist(), ranks)
    else:
        collector.add(cells.to_pylist())


def parts_of_batch(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a batch so that their texts, which may be many times in it, are not too long."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if str(column.type).startswith("dictionary") and (texts := array_texts(column)):
            sizes += texts.sizes
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // _PART)) + 1
    for start, end in pairwise([0, *cuts.tolist(), batch.num_rows]):
        yield batch.slice(start, end - start)


def _of_dictionary(cells: pyarrow.DictionaryArray) -> Texts | None:
    texts = array_texts(cells.dictionary)
    if texts is None:
        return None
    nulls = _nulls(cells.indices)
    if nulls.all():
        return Texts(texts.data, np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int64))
    chosen = texts.chosen(cells.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    return Texts(chosen.data, chosen.begins, np.where(nulls, 0, chosen.sizes))


def _wholes(cells: pyarrow.Array) -> Values | None:
    if str(cells.type) not in _WHOLE or cells.null_count:
        return None
    values = cells.to_numpy(zero_copy_only=False)
    if str(cells.type) == "uint64" and len(values) and values.max() >= 1 << 63:
        raise InvalidValue
    whole: NDArray[np.int64] = values.astype(np.int64)
    return whole


def _reals(cells: pyarrow.Array) -> Values | None:
    if str(cells.type) not in _NUMBERS:
        return None
    filled = cells.fill_null(0) if cells.null_count else cells
    with np.errstate(invalid="ignore"):  # some NaN of 32 bits signal
        values: NDArray[np.float64] = filled.to_numpy(zero_copy_only=False).astype(np.float64)
    if cells.null_count:
        values[_nulls(cells)] = np.nan
    if (np.isfinite(values) & (np.abs(values) >= MOST_FLOAT)).any():
        raise InvalidValue
    with np.errstate(over="ignore"):  # infinity is one
        rounded: NDArray[np.float32] = values.astype(np.float32)
    return rounded


def _truths(cells: pyarrow.Array) -> Values | None:
    if str(cells.type) != "bool" or cells.null_count:
        return None
    truths: NDArray[np.int64] = cells.to_numpy(zero_copy_only=False).astype(np.int64)
    return truths


def _nulls(cells: pyarrow.Array) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = cells.is_null().to_numpy(zero_copy_only=False)
    return nulls


_OFFSETS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
_WHOLE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS = {*_WHOLE, "float", "double"}
_QUICK: dict[str, Callable[[pyarrow.Array], Values | None]] = {
    "int": _wholes,
    "float": _reals,
    "bool": _truths,
    "text": array_texts,
    "bytes": array_texts,
}
