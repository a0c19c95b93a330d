"""Records of what people do with runs after their end: tags, notes, removal.

- Defines what stands in the place of run.json while a run is removed: the run is none from then on.
- Defines notes.json, which people may change at any time: the tags of a run, and sentences about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from tpuctl import bucket_objects, clock
from tpuctl.bucket_objects import AttemptNumber, Label, Line
from tpuctl.errors import UsageError

MOST_RECORD = 12 << 20
"""Characters of the record that is kept, in base64."""
LARGEST_REMOVAL = MOST_RECORD + (256 << 10)
"""Bytes of the object."""
REMOVAL_TYPE = "application/json; removal=1"
"""Content type: a listing tells by it."""


class Removal(msgspec.Struct, frozen=True, tag_field="kind", tag="removal"):
    """Who removes a run, and what the run was; it is deleted when nothing else is left."""

    run: Label
    by: Label
    started: str
    attempts: Annotated[tuple[AttemptNumber, ...], msgspec.Meta(max_length=9999)]
    """Those that had ended when the removal began."""
    record: Annotated[bytes, msgspec.Meta(max_length=MOST_RECORD)] = b""
    """The bytes of run.json, which come back if the run turns out to go on."""

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for a time that no clock shows."""
        clock.parse(self.started)


def encode_removal(removal: Removal) -> bytes:
    """Return the object's bytes."""
    return msgspec.json.format(msgspec.json.encode(removal), indent=2) + b"\n"


def find_removal(data: bytes, run: str) -> Removal | None:
    """Return the removal that stands in a run's run.json; None for anything else."""

    def check(removal: Removal) -> None:
        if removal.run != run:
            raise ValueError("it is of another run")

    try:
        return bucket_objects.decode(data, Removal, check)
    except bucket_objects.DecodeError:
        return None


SCHEMA = 1
LARGEST_NOTES = 1 << 20
"""Bytes of the object."""
MOST_TAGS = 64
"""As many as Google Cloud allows labels of a resource."""
MOST_NOTES = 100
LONGEST_VALUE = 256
LONGEST_NOTE = 4096
KEEP = "keep"
"""The tag that keeps a run from `runs gc`."""
_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9_])?")

TagKey = Annotated[str, msgspec.Meta(pattern=rf"\A{_KEY.pattern}\Z")]


class Note(msgspec.Struct, frozen=True):
    """A sentence of somebody about a run."""

    text: Line
    by: Label
    at: str
    token: Label = ""
    """Random: a note whose writing is tried twice is kept once."""

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for a time that no clock shows."""
        clock.parse(self.at)


class Notes(msgspec.Struct, frozen=True):
    """notes.json: replaced under its generation."""

    run: Label
    tags: Annotated[dict[TagKey, Label], msgspec.Meta(max_length=MOST_TAGS)] = {}
    notes: Annotated[tuple[Note, ...], msgspec.Meta(max_length=MOST_NOTES)] = ()
    """The oldest first."""
    schema: int = SCHEMA

    @property
    def labels(self) -> str:
        """Its tags in one line, such as `keep, team=vision`."""
        return ", ".join(f"{key}={value}" if value else key for key, value in sorted(self.tags.items()))


@dataclass(frozen=True)
class TagChange:
    """Tags to set, and keys of those to remove."""

    tags: Mapping[str, str] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, words: Iterable[str]) -> TagChange:
        """Return the change in words as `kubectl label` takes them: `KEY`, `KEY=VALUE`, `KEY-`.

        Raises UsageError for any other word, and for a key that is set and removed.
        """
        tags: dict[str, str] = {}
        removed = set[str]()
        for word in words:
            if "=" not in word and word.endswith("-"):
                removed.add(check_key(word[:-1]))
                continue
            key, _, value = word.partition("=")
            if tags.get(check_key(key), value) != value:
                raise UsageError(f"The tag '{key}' is given two values.", hint="Give it one.")
            tags[key] = check_value(key, value)
        for key in removed & tags.keys():
            raise UsageError(f"The tag '{key}' is set and removed.", hint=f"'{key}-' removes it.")
        return cls(tags, frozenset(removed))


@dataclass(frozen=True)
class TagCondition:
    """What a tag is to be: a key with one value, or with any."""

    key: str
    value: str | None = None

    @classmethod
    def parse(cls, text: str) -> TagCondition:
        """Return the condition in `KEY` or `KEY=VALUE`; raises UsageError for a key that no tag has."""
        key, has_value, value = text.partition("=")
        return cls(check_key(key), value if has_value else None)

    def holds(self, tags: Mapping[str, str]) -> bool:
        """Return whether a run has such a tag."""
        return self.key in tags and self.value in (None, tags[self.key])


def check_key(key: str) -> str:
    """Return the key of a tag; raises UsageError for one that no tag can have."""
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"'{key}' cannot be the key of a tag.",
            hint="Letters, digits and _ . / - between them, at most 63: tpuctl tag RUN team=vision",
        )
    return key


def check_value(key: str, value: str) -> str:
    """Return the value of a tag; raises UsageError for one that is too long or not printable."""
    if len(value) > LONGEST_VALUE or not value.isprintable():
        reason = "has control characters" if len(value) <= LONGEST_VALUE else "is too long"
        raise UsageError(f"The value of the tag '{key}' {reason}.", hint=_bounds(LONGEST_VALUE))
    return value


def check_note(text: str) -> str:
    """Return the text of a note; raises UsageError for one that is empty, too long or not printable."""
    text = text.strip()
    if not text or len(text) > LONGEST_NOTE or not text.isprintable():
        reason = "is empty" if not text else "is too long"
        reason = reason if len(text) > LONGEST_NOTE or not text else "has control characters or line breaks"
        raise UsageError(f"The note {reason}.", hint=_bounds(LONGEST_NOTE))
    return text


def _bounds(most: int) -> str:
    return f"One line of at most {most} printable characters."
