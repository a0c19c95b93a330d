"""Defines what stands in the place of run.json while a run is removed: the run is none from then on."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tpuctl import clock
from tpuctl.bucket_objects import decoding
from tpuctl.bucket_objects.fields import AttemptNumber, Label

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
        return decoding.decode(data, Removal, check)
    except decoding.DecodeError:
        return None
