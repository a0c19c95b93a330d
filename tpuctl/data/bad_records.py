"""What is bad in a source: records as values, and the error that names the first few of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tpuctl.errors import UsageError


class BadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record that cannot be used; `str()` is a sentence without its full stop."""

    file: str
    """Path below the source, with `/`; the source's own name where it is one file."""
    why: str
    """What the sentence says of it: `is empty`, `has 3 columns, and the header has 4`."""
    line: int = 0
    """Line, row or record in the file, counted from 1 as an editor does; 0 where the file is the record."""
    hint: str = ""
    """What to do, where that is not simply to mend or remove it."""
    unit: str = "line"
    """What `line` counts: `row` or `record` where a file has no lines."""

    def __str__(self) -> str:
        where = f"{self.unit} {self.line} of '{self.file}'" if self.line else f"'{self.file}'"
        return f"{where} {self.why}"


class BadRecordsError(UsageError):
    """Records that cannot be used: the first few by name, and how many more."""

    NAMED = 5

    def __init__(self, bad: Sequence[BadRecord], *, at_least: bool = False) -> None:
        first = bad[0]
        count = f"{'At least ' if at_least else ''}{len(bad)}"
        named = "; ".join(str(one) for one in bad[: self.NAMED])
        more = len(bad) - self.NAMED
        listed = f"{named}; and {more} more" if more > 0 else named
        message = str(first) if len(bad) == 1 else f"{count} records cannot be used: {listed}"
        mend = first.hint if len(bad) == 1 and first.hint else "Mend or remove what is bad"
        super().__init__(
            f"{message[0].upper()}{message[1:]}.",
            hint=f"{mend.rstrip('.')}, or leave it out with --skip-bad. Nothing was published.",
            file=first.file,
            bad=[{"file": one.file, "line": one.line, "why": one.why} for one in bad],
        )
        self.bad = list(bad)
