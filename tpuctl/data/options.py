"""What the user says of a source, besides where it is."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user says of a source; a reader refuses with UsageError what makes no sense for it."""

    types: dict[str, str] = {}
    """Type by name of the field, of those in `features.TYPES`; the others are inferred."""
    label: str = ""
    """Name of the field that holds the class."""
    resize: tuple[int, int] | None = None
    """Height and width that images are brought to."""
