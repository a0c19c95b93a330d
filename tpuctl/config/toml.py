"""Reads TOML that anybody may have written: refused with one error, in a time that grows with its size."""

from __future__ import annotations

import re
from typing import Any

import msgspec

MOST_PARTS = 64
"""Parts of a key, `a.b.c`: Python's parser holds each beginning of it."""
_DOTTED = re.compile(rf"""(?:\.[ \t]*+(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+){{{MOST_PARTS}}}""")


class TomlError(ValueError):
    """A text is not TOML, or not of the type; the message says where, if that is known."""


def decode(text: str, kind: Any = Any) -> Any:
    """Return the content of a text as a type that msgspec knows; raises TomlError."""
    if _DOTTED.search(text):
        raise TomlError(f"a key has more than {MOST_PARTS} parts")
    try:
        return msgspec.toml.decode(text, type=kind)
    except RecursionError as error:
        raise TomlError("it is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:  # the latter for a number of thousands of digits
        raise TomlError(str(error)) from error
