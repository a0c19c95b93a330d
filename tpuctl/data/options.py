"""What the user says of a source, besides where it is."""

from __future__ import annotations

from typing import Literal

import msgspec

TokenKind = Literal["words", "wordpiece"]
TOKENS = "tokens"
"""Name of the field that holds the ids, where the text was."""


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a text becomes token ids."""

    kind: TokenKind
    length: int
    """Ids of a record: longer texts are cut at the end, shorter ones padded."""
    wanted: int | None = None
    """Entries asked for, of a vocabulary made from the training split; None where a file was given."""
    text: str = ""
    """Name of the field that holds the text; empty until it is known, where there is only one."""
    entries: int = 0
    """Entries that the vocabulary has; 0 until it is there."""


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user says of a source; a reader refuses with UsageError what makes no sense for it."""

    types: dict[str, str] = {}
    """Type by name of the field, of those in `features.TYPES`; the others are inferred."""
    label: str = ""
    """Name of the field that holds the class."""
    resize: tuple[int, int] | None = None
    """Height and width that images are brought to."""
    tokens: Tokens | None = None
    """None: texts stay texts."""
