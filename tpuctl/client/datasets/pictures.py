"""Draws the first pictures of a dataset side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuctl import printable
from tpuctl.data.schema.features import Image, Label
from tpuctl.display.listing import Picture
from tpuctl.display.markup import cell
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest
    from tpuctl.flows.datasets.head import Example


def sheet(examples: Sequence[Example], of: Manifest) -> Picture:
    """Return the pictures of some examples, with their other fields below each.

    Raises UsageError for a dataset without pictures.
    """
    from tpuctl.data.images.contact_sheet import contact_sheet  # Pillow is slow to import

    field = next((name for name, feature in of.features.items() if isinstance(feature, Image)), None)
    if field is None:
        raise UsageError(f"The dataset '{of.name}' holds no images.", hint="Its records: dataset.head()")
    drawn = contact_sheet([(encoded_picture(each, field), _caption(each, field, of)) for each in examples])
    text = f"{len(examples)} pictures of {printable.line(of.name)}"
    return Picture(drawn.png, text, tuple(drawn.problems))


def encoded_picture(example: Example, field: str) -> bytes:
    """Return the encoded picture of an example; nothing if the record holds something else there."""
    value = next(iter(example.values.get(field, [])), b"")
    return value if isinstance(value, bytes) else b""


def _caption(example: Example, field: str, of: Manifest) -> str:
    return ", ".join(
        _text(name, list(example.values.get(name, [])), of) for name in of.features if name != field
    )


def _text(name: str, values: list[bytes | int | float], of: Manifest) -> str:
    feature, first = of.features[name], next(iter(values), None)
    if isinstance(feature, Label) and isinstance(first, int) and 0 <= first < len(feature.classes):
        number, name = str(first), feature.classes[first]
        return number if number == name else f"{number} ({name})"
    return str(cell(name, values))
