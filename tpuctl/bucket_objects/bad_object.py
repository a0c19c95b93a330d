"""Defines the one error of an object that holds something else than tpuctl writes there."""

from __future__ import annotations

from tpuctl.errors import StateError

HINT = "It was written by another version of tpuctl, or by hand."
_LONGEST = 300
"""Characters of an object's name, or of a reason, in the sentence."""


class BadObjectError(StateError):
    """An object in the bucket cannot be used; the message is one printable line with its name and why."""

    def __init__(self, name: str, reason: str, *, hint: str = HINT, **facts: object) -> None:
        """Take the object's name and the rest of a sentence about it, without its full stop."""
        line = _one_line(name)
        super().__init__(f"{line} {_one_line(reason)}.", hint=hint, object=line, **facts)


def too_large(name: str, most: int) -> BadObjectError:
    """Return the error for an object with more than `most` bytes."""
    return BadObjectError(name, f"is larger than {most:,} bytes")


def _one_line(text: str) -> str:
    """Return a text with escapes for all that is not printable, cut where it is long."""
    line = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text[: 2 * _LONGEST]
    )
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 20]}…"
