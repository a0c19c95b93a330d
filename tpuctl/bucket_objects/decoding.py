"""Decodes JSON from the bucket into typed records: bounded in size and depth, UTF-8, without surprises."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record")

DEEPEST = 64
"""Levels of arrays and objects; TFDS nests about four for each level of a feature."""
_STRINGS = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)++', re.DOTALL)
"""Strings up to the next bracket: what stands between the brackets is taken out in few pieces."""
_ALIKE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}
_MAKING = threading.Lock()


class DecodeError(ValueError):
    """The bytes are not such a record; the message completes a sentence about them."""


def decode(data: bytes, kind: type[Record], check: Callable[[Record], None] | None = None) -> Record:
    """Return the record of type `kind` in JSON, without the fields that the type lacks.

    Of a key that occurs twice the last value counts, as in Python's own decoder on the hosts. `check` raises
    ValueError for a record that its types allow, but its place does not. Raises DecodeError.
    """
    try:
        data.decode()  # msgspec does not look into strings that it skips
        record = decoder_of(kind).decode(data)
        if _is_deep(data):
            raise RecursionError
        if check:
            check(record)
    except RecursionError as error:
        raise DecodeError(f"it is nested more than {DEEPEST} levels deep") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"byte {error.start} is not UTF-8") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(str(error)) from error
    return record


def decoder_of(kind: type[Record]) -> msgspec.json.Decoder[Record]:
    """Return the decoder of JSON for a type, which is made once, from any thread.

    msgspec 0.22 reads the fields of a type at its first use, and ends the process with SIGSEGV where another
    thread uses the same type before those of a type within it are read.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        with _MAKING:
            decoder = _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    return decoder


def _is_deep(data: bytes) -> bool:
    """Return whether well-formed JSON is nested too deep; each step takes the innermost level away."""
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    brackets = _STRINGS.sub(b"", data).translate(_ALIKE, _NOT_BRACKETS)
    for _ in range(DEEPEST):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
