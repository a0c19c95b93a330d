"""Defines the options of a source: types, label, image size, tokens."""

from __future__ import annotations

from typing import Literal

import msgspec

TokenKind = Literal["words", "wordpiece"]
Channels = Literal[1, 3, 4, "keep"]
"""Channels of all images of a dataset, or as many as each image has."""
TOKENS = "tokens"
"""Name of the field that holds token ids, in place of the text."""


class TokenOptions(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"vocabulary_size": "wanted"}  # as in manifests
):  # fmt: skip
    """How a text becomes token ids."""

    kind: TokenKind
    length: int
    """Ids of a record: longer texts are cut at the end, shorter ones padded."""
    vocabulary_size: int | None = None
    """Most entries of a vocabulary learnt from the training split; None where a file is given."""
    text: str = ""
    """Name of the field that holds the text; empty until the source is read, where there is only one."""
    entries: int = 0
    """Entries of the vocabulary; 0 until it is read or learnt."""


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user says of a source; a reader raises UsageError for options it does not support."""

    types: dict[str, str] = {}
    """Type by name of the field, of those in `features.TYPES`; the others are inferred."""
    label: str = ""
    """Name of the field that holds the class."""
    resize: tuple[int, int] | None = None
    """Height and width of all images after resizing; None keeps every image as it is."""
    tokens: TokenOptions | None = None
    """None: texts stay texts."""
    channels: Channels | None = None
    """Channels of all images, or as many as each has; None: what most images have."""
