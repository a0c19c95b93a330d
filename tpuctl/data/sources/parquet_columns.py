"""Converts the columns of Parquet files: which feature an Arrow type becomes (images too), and its cells."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from tpuctl.data.schema.features import Tensor
from tpuctl.data.tables.arrow_values import with_arrays
from tpuctl.data.tables.columns import Column, InvalidValue
from tpuctl.data.tables.typed_cells import given_column, infer_column, list_column
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    import pyarrow

Content = Callable[[object], bytes]
"""Returns the bytes in a cell; none where it has none."""
_WHOLE = [Tensor(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def arrow_column(
    name: str, kind: pyarrow.DataType, has_nulls: bool, images: Callable[[Content], Column[object] | None]
) -> Column[object]:
    """Return a column of an Arrow type; raises UsageError for one that a record cannot hold.

    Whole numbers with nulls become floats. `images` returns the column of images, if half of its values are
    some; it is called where bytes may be: as they are, or in a struct's field `bytes`.
    """
    import pyarrow.types as is_  # noqa: PLC0415  only for Parquet

    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_struct(kind) and any(field.name == "bytes" and is_.is_binary(field.type) for field in kind):
        return images(_bytes_of_struct) or _refuse(name, kind)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return images(_bytes) or with_arrays(given_column(name, "bytes"), "bytes")
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return _lists(name, kind, is_)
    column = _scalars(name, kind, is_) or _refuse(name, kind)
    if has_nulls and column.feature in _WHOLE:
        return with_arrays(given_column(name, "float"), "float")
    return column


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


def _refuse(name: str, kind: pyarrow.DataType) -> NoReturn:
    raise UsageError(
        f"The column '{name}' holds {kind}, which no record can.",
        hint=f"To have it as text: --type {name}=text.",
        column=name,
    )
