"""What a column of each Arrow type becomes in the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.data.schema.features import Image, Tensor
from tpuctl.data.tables.columns import Column, InvalidValue
from tpuctl.data.tables.typed_cells import given_column, infer_column, list_column
from tpuctl.errors import UsageError


def arrow_column(name: str, kind: Any, gaps: bool, first: Callable[[], Any]) -> Column:
    """Return a column of an Arrow type; raises UsageError for one that a record cannot hold.

    `gaps` says whether there are nulls: whole numbers become floats then. `first` returns the first value,
    asked for only where bytes may be pictures: as they are, or in a struct's field `bytes`.
    """
    import pyarrow.types as is_  # noqa: PLC0415  only for Parquet

    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_struct(kind) and any(field.name == "bytes" and is_.is_binary(field.type) for field in kind):
        pictures = _pictures(name, first(), lambda cell: cell["bytes"])
        if pictures is None:
            raise _refused(name, kind)
        return pictures
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return _pictures(name, first(), lambda cell: cell) or given_column(name, "bytes")
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return _lists(name, kind, is_)
    column = _plain(name, kind, is_)
    if column is None:
        raise _refused(name, kind)
    return given_column(name, "float") if gaps and column.feature in _WHOLE else column


_WHOLE = [Tensor(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def _plain(name: str, kind: Any, is_: Any) -> Column | None:
    if is_.is_integer(kind):
        return infer_column(name, [0])._replace(feature=Tensor(str(kind)))
    if is_.is_floating(kind):
        return given_column(name, "float")
    if is_.is_boolean(kind):
        return given_column(name, "bool")
    if is_.is_string(kind) or is_.is_large_string(kind):
        return infer_column(name, [""])
    return None


def _lists(name: str, kind: Any, is_: Any) -> Column:
    item = _plain(name, kind.value_type, is_)
    if item is None or not isinstance(item.feature, Tensor) or item.feature.dtype == "bool":
        if is_.is_string(kind.value_type):
            return list_column(name, Tensor("string", (None,)), "text")
        raise _refused(name, kind)
    what = "float" if item.feature.dtype == "float32" else "int"
    if not is_.is_fixed_size_list(kind):
        return list_column(name, Tensor(item.feature.dtype, (None,)), what)
    column = list_column(name, Tensor(item.feature.dtype, (kind.list_size,)), what)
    return column._replace(convert=lambda cell: column.convert(cell) if cell is not None else _missing())


def _pictures(name: str, first: Any, content: Callable[[Any], Any]) -> Column | None:
    """Return a column of images if its first value is one; all others must have as many channels."""
    try:
        model = inspect_image(content(first) or b"")
    except (InvalidImage, TypeError):
        return None

    def convert(cell: Any) -> bytes:
        data: bytes = content(cell) or b""
        if inspect_image(data)[2:4] != model[2:4]:
            raise InvalidValue
        return data

    what = f"PNG or JPEG images with {model.channels} channel{'s' if model.channels > 1 else ''}"
    return Column(name, Image((None, None, model.channels), model.dtype), convert, what)


def _missing() -> Any:
    raise InvalidValue


def _refused(name: str, kind: Any) -> UsageError:
    return UsageError(
        f"The column '{name}' holds {kind}, which no record can.",
        hint=f"To have it as text: --type {name}=text.",
        column=name,
    )
