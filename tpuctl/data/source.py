"""What every reader hands on: the records of a source, checked, and the way back to each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import NamedTuple

import google_crc32c

from tpuctl.data.features import Feature
from tpuctl.errors import UsageError


class Record(NamedTuple):
    """What is remembered of one record between the plan and the conversion."""

    key: str
    """Its name in the source, unique there: `train/cat/1.png`."""
    split: str
    """The split the source puts it in; empty where the source has none."""
    label: int
    """The class it counts for when a split is drawn; 0 where there are none."""
    size: int
    """Bytes of the serialised example."""
    crc32c: int
    """Checksum of the serialised example."""


@dataclass(frozen=True)
class Source:
    """A dataset as the user has it, every record of it read and checked once."""

    kind: str
    features: dict[str, Feature]
    classes: tuple[str, ...]
    supervised: tuple[str, str] | None
    """Names of the input and the target feature."""
    records: tuple[Record, ...]
    """In the order of their keys."""
    read: Callable[[Record], bytes]
    """Makes the serialised example again."""
    keys: Callable[[], Iterable[str]]
    """Lists the source again, cheaply."""


Progress = Callable[[int, int], None]
"""Called with the records done and the records there are."""


def checked_read(source: Source, record: Record) -> bytes:
    """Return the serialised example of `record`; raises UsageError if it is not what the plan has seen."""
    data = source.read(record)
    if len(data) != record.size or google_crc32c.value(data) != record.crc32c:
        raise changed(record.key, "has changed")
    return data


def check_keys(source: Source) -> None:
    """Raise UsageError if records have come or gone since the plan."""
    before = {record.key for record in source.records}
    now = set(source.keys())
    for keys, what in ((before - now, "has gone"), (now - before, "is new")):
        if keys:
            raise changed(min(keys), what)


def changed(key: str, what: str) -> UsageError:
    """Return the error for a source that did not stay as it was."""
    return UsageError(
        f"The source changed during the conversion: '{key}' {what}.",
        hint="Nothing was published. Run it again when nothing writes to the source any more.",
        file=key,
    )


def shuffled(records: Iterable[Record], seed: int, purpose: str) -> list[Record]:
    """Return the records in an order that depends on their keys, `seed` and `purpose` alone.

    Sorted by a hash and not by `random`, so that no version of Python and no order of listing changes it.
    """

    def rank(record: Record) -> tuple[bytes, str]:
        return blake2b(f"{purpose}:{seed}:{record.key}".encode(), digest_size=8).digest(), record.key

    return sorted(records, key=rank)


def fingerprint(records: Iterable[Record]) -> str:
    """Return the SHA-256 of all keys, splits and contents, in hexadecimal."""
    digest = sha256()
    for record in records:
        digest.update(f"{record.key}\t{record.split}\t{record.size}\t{record.crc32c}\n".encode())
    return digest.hexdigest()
