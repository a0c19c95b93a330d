"""Reads objects of the bucket as input from strangers: bounded, strictly typed, refused with one error.

- Defines the one error of an object that holds something else than tpuctl writes there.
- Types of fields in records of the bucket, each with its bounds; `Meta` is checked when a record is read.
- Defines what a bucket lists of its objects, a page at a time.
- Decodes JSON from the bucket into typed records: bounded in size and depth, UTF-8, without surprises.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Meta

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


Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
"""A number that every reader of JSON holds exactly."""
LAST_ATTEMPT = 9999
AttemptNumber = Annotated[int, Meta(ge=1, le=LAST_ATTEMPT)]
WorkerNumber = Annotated[int, Meta(ge=0, lt=4096)]
"""Number of a worker; the largest slice, 9,216 chips of TPU7x, has 2,304 hosts."""
ExitCode = Annotated[int, Meta(ge=-255, le=(1 << 32) - 1)]
Hosts = Annotated[int, Meta(ge=0, le=4096)]
Word = Annotated[str, Meta(pattern=r"\A[a-z][a-z-]{0,30}\Z")]
"""A state or an outcome, also one that a later version adds."""
Label = Annotated[str, Meta(max_length=256)]
Line = Annotated[str, Meta(max_length=4096)]
Text = Annotated[str, Meta(max_length=131_072)]
"""Linux passes no longer argument or variable to a program (MAX_ARG_STRLEN)."""
Metadata = Annotated[str, Meta(max_length=262_144)]
"""Of Compute Engine: 256 KiB a value."""
ResourceName = Annotated[str, Meta(pattern=r"\A[a-z0-9](?:[a-z0-9.:-]{0,98}[a-z0-9])?\Z")]
"""A project, zone or node; older projects have a domain, `example.com:name`."""
PackageName = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,199}\Z")]
"""Of a package, normalized as in PEP 503; with PackageVersion as inventory.py of the worker lists them."""
PackageVersion = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}\Z")]
PythonVersion = Annotated[str, Meta(pattern=r"\A[0-9]{1,3}(?:\.[0-9]{1,5}){0,3}[A-Za-z0-9.+-]{0,40}\Z")]
"""`3.11.7`, also `3.13.0rc1` and `3.12.3+`."""
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Crc32c = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9+/]{6}==\Z")]
FileName = Annotated[str, Meta(pattern=r"\A(?!\.)[^/\\\x00-\x1f\x7f]{1,300}\Z")]
"""The name of an object directly below a folder."""
ObjectName = Annotated[
    str, Meta(pattern=r"\A(?!/)(?!(?:.*/)?\.\.(?:/|\Z))[^\x00-\x08\x0a-\x1f\x7f]{1,1000}\Z")
]
"""The name of an object somewhere below a folder: that of a class list has the name of a column in it."""


UNKNOWN = -1
"""In the place of a checksum that nobody has computed."""


class ListedObject(NamedTuple):
    """One object as the bucket lists it."""

    name: str
    size: int
    """Bytes as they are stored."""
    generation: int
    crc32c: int = UNKNOWN
    encoding: str = ""
    """Content-Encoding: `gzip` where the bytes are those of another file, packed."""


class ObjectPage(NamedTuple):
    """Some of the objects directly under a prefix, and of the folders there."""

    items: list[ListedObject]
    folders: list[str]
    """Prefixes that end in a slash."""
    token: str
    """Of the page that follows; empty for the last."""


class ListedObjects(Protocol):
    """The objects of one bucket, from any thread; what fails is a TpuctlError."""

    @property
    def bucket(self) -> str:
        """Name of the bucket."""

    def page(self, prefix: str, token: str = "", most: int = 0) -> ObjectPage:
        """Return what is directly under a prefix, a page at a time."""

    def find(self, name: str) -> ListedObject | None:
        """Return an object as it is now; None where there is none."""

    def read(self, item: ListedObject, start: int, end: int) -> bytes:
        """Return bytes of the generation that was listed; raises NotFoundError when it is gone."""


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
