"""Converts the columns of Parquet files: which feature an Arrow type becomes (images too), and its cells."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from tpuctl.data.schema.features import Tensor
from tpuctl.data.sources.audio.header import InvalidSound
from tpuctl.data.sources.audio.rule import SoundRule
from tpuctl.data.tables.arrow_values import with_arrays
from tpuctl.data.tables.columns import Column, InvalidValue, within_memory
from tpuctl.data.tables.typed_cells import given_column, infer_column, list_column
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    import pyarrow

_TRIED = 16
"""Values of a column that holds no sounds if none of these is one."""
Content = Callable[[object], bytes]
"""Returns the bytes in a cell; none where it has none."""
_NO_MEDIA = "Its bytes are no pictures, and no sounds in WAV or FLAC: convert them. "
_WHOLE = [Tensor(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def arrow_column(
    name: str, kind: pyarrow.DataType, has_nulls: bool, images: Callable[[Content], Column[object] | None]
) -> Column[object]:
    """Return a column of an Arrow type; raises UsageError for one that a record cannot hold.

    Whole numbers with nulls become floats. `images` returns the column of images or sounds, if half of its
    values are some; it is called where bytes may be: as they are, or in a struct's field `bytes`.
    """
    import pyarrow.types as is_  # noqa: PLC0415  only for Parquet

    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_struct(kind) and any(field.name == "bytes" and is_.is_binary(field.type) for field in kind):
        return images(_bytes_of_struct) or _refuse(name, kind, _NO_MEDIA)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return images(_bytes) or with_arrays(given_column(name, "bytes"), "bytes")
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return _lists(name, kind, is_)
    column = _scalars(name, kind, is_) or _refuse(name, kind)
    if has_nulls and column.feature in _WHOLE:
        return with_arrays(given_column(name, "float"), "float")
    return column


def sound_column(
    name: str, values: Iterable[bytes], content: Content, is_declared: bool
) -> Column[object] | None:
    """Return the column of sounds, if at least half of its values are some; raises UsageError otherwise.

    None where the source does not declare any.
    """
    rule, count = SoundRule(), 0
    for count, value in enumerate(values, 1):
        rule.add(value)
        if count == _TRIED and not rule.sounds:
            break
    if not rule.sounds or 2 * rule.sounds < count:
        if not is_declared:
            return None
        raise UsageError(
            f"The column '{name}' has sounds that are not WAV or FLAC, or are not in the file.",
            hint=f"Embed them as WAV, or give the type text: --type {shlex.quote(name)}=text.",
            column=name,
        )
    rule.finish()

    def convert(cell: object) -> bytes:
        try:
            return rule.apply(content(cell))
        except InvalidSound as error:
            raise InvalidValue(str(error)) from error

    def convert_many(cells: pyarrow.Array) -> list[bytes]:
        return within_memory(map(convert, cells.to_pylist()))

    return Column(name, rule.feature, convert, "sounds", convert_many)


def _scalars(name: str, kind: pyarrow.DataType, is_: ModuleType) -> Column[object] | None:
    if is_.is_integer(kind):
        return with_arrays(infer_column(name, [0])._replace(feature=Tensor(str(kind))), "int")
    if is_.is_floating(kind):
        return with_arrays(given_column(name, "float"), "float")
    if is_.is_boolean(kind):
        return with_arrays(given_column(name, "bool"), "bool")
    if is_.is_string(kind) or is_.is_large_string(kind):
        return with_arrays(infer_column(name, [""]), "text")
    return None


def _lists(name: str, kind: pyarrow.DataType, is_: ModuleType) -> Column[object]:
    item = _scalars(name, kind.value_type, is_)
    if item is None or not isinstance(item.feature, Tensor) or item.feature.dtype == "bool":
        if is_.is_string(kind.value_type):
            return list_column(name, Tensor("string", (None,)), "text")
        _refuse(name, kind)
    item_kind = "float" if item.feature.dtype == "float32" else "int"
    if not is_.is_fixed_size_list(kind):
        return list_column(name, Tensor(item.feature.dtype, (None,)), item_kind)
    column = list_column(name, Tensor(item.feature.dtype, (kind.list_size,)), item_kind)

    def convert(cell: object) -> Value:
        if cell is None:
            raise InvalidValue
        return column.convert(cell)

    return column._replace(convert=convert)


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else b""


def _bytes_of_struct(cell: object) -> bytes:
    return _bytes(cell["bytes"]) if isinstance(cell, dict) else b""


def _refuse(name: str, kind: pyarrow.DataType, why: str = "") -> NoReturn:
    raise UsageError(
        f"The column '{name}' holds {kind}, which no record can.",
        hint=f"{why}To have it as text: --type {shlex.quote(name)}=text.",
        column=name,
    )
