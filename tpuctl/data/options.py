"""Defines the options of a source: types, label, image size, tokens.

- Defines bad records, and the error that names the first few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tpuctl.errors import UsageError

TokenKind = Literal["words", "wordpiece"]
Channels = Literal[1, 3, 4, "keep"]
"""Channels of all images of a dataset, or as many as each image has."""
TOKENS = "tokens"
"""Name of the field that holds token ids, in place of the text."""


class TokenOptions(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"vocabulary_size": "wanted"},  # as in manifests
):
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


class BadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record that cannot be used; `str()` is a sentence without its full stop."""

    file: str
    """Path below the source, with `/`; the source's own name where it is one file."""
    why: str
    """Completes a sentence about it: `is empty`, `has 3 columns, and the header has 4`."""
    line: int = 0
    """Line, row or record in the file, counted from 1 as an editor does; 0 where the file is the record."""
    hint: str = ""
    """What to do, if it is anything but fixing or removing the record."""
    unit: str = "line"
    """What `line` counts: `row` or `record` where a file has no lines."""

    def __str__(self) -> str:
        where = f"{self.unit} {self.line} of '{self.file}'" if self.line else f"'{self.file}'"
        return f"{where} {self.why}"


class BadRecordsError(UsageError):
    """Records that cannot be used: the first few by name, and the number of the others."""

    NAMED = 5

    def __init__(self, bad: Sequence[BadRecord], *, at_least: bool = False) -> None:
        first = bad[0]
        count = f"{'At least ' if at_least else ''}{len(bad)}"
        named = "; ".join(map(str, bad[: self.NAMED]))
        more = len(bad) - self.NAMED
        listed = f"{named}; and {more} more" if more > 0 else named
        message = str(first) if len(bad) == 1 else f"{count} records cannot be used: {listed}"
        own_hint = first.hint.rstrip(".") if all(record.hint == first.hint for record in bad) else ""
        fix = f"{own_hint}, or skip bad records" if own_hint else "Fix or remove bad records, or skip them"
        super().__init__(
            f"{message[0].upper()}{message[1:]}.",
            hint=f"{fix} with --skip-bad. Nothing was published.",
            file=first.file,
            bad=[{"file": record.file, "line": record.line, "why": record.why} for record in bad],
        )
        self.bad = list(bad)
