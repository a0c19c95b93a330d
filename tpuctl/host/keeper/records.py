"""Defines what laptop and keeper share: metadata, the note about its work, and the record of a deletion."""

from __future__ import annotations

import calendar
import json
import re
import time
from dataclasses import asdict, dataclass, replace
from typing import Mapping, Optional, Union

SCHEMA = 1

TTL = "tpuctl-ttl"
"""Metadata: seconds from the node's creation to its end, as `28800s`."""
EXPIRES = "tpuctl-expires"
"""Metadata: the moment of its end, ISO-8601, UTC; replaces the one that follows from TTL."""
IDLE = "tpuctl-idle"
"""Metadata: seconds without activity after which it ends, as `1800s`."""
BUCKET = "tpuctl-bucket"
"""Metadata: the bucket in which a deletion is recorded."""

NODES = "nodes/"
"""The folder in the bucket of what is known of nodes."""
NAMESPACE, NOTE = "tpuctl", "keeper"
"""Where a host's guest attributes hold the keeper's note."""
EXPIRED, IDLED, PREEMPTED = "expired", "idle", "preempted"
"""Reasons of a deletion; for the last one, the record is of who deletes what Google has taken back."""
MOST_CHARACTERS = 1000
"""Of an error in a note."""
LONGEST = 366 * 86400
"""Seconds of a --ttl."""
_DURATION = re.compile(r"([0-9]{1,9})s")
_MOMENT = re.compile(r"2[01][0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")


@dataclass(frozen=True)
class Note:
    """What the keeper of one host does; in the guest attributes, so that it needs no network to be written.

    Every program on the host can write it. All times are ISO-8601, UTC.
    """

    worker: int
    at: str
    """When it was written."""
    expires: str = ""
    """When the TPU is deleted at the latest; empty without a --ttl."""
    active: str = ""
    """When the host was last in use."""
    activity: str = ""
    """What uses it now; empty if nothing does."""
    deleting: str = ""
    """Why the TPU is being deleted: EXPIRED or IDLED; empty before that."""
    error: str = ""
    """Why the keeper cannot do its work; empty if it can."""
    schema: int = SCHEMA


@dataclass(frozen=True)
class Deletion:
    """The record in the bucket why a TPU is about to be deleted, of its keeper or a command; created once."""

    project: str
    zone: str
    node: str
    uid: str
    queued_resource: str
    """Empty for a node that was created directly."""
    reason: str
    """EXPIRED, IDLED or PREEMPTED."""
    at: str
    expires: str
    active: str
    schema: int = SCHEMA


def node_folder(project: str, zone: str, node: str, uid: str) -> str:
    """Return the folder of one node in the bucket, with a trailing slash."""
    return "%s%s.%s.%s.%s/" % (NODES, project.replace(":", "_"), zone, node, uid)


def deletions_folder(project: str, zone: str, node: str, uid: str) -> str:
    """Return the folder in the bucket with a node's deletions, with a trailing slash."""
    return "%skeeper/" % node_folder(project, zone, node, uid)


def encode(record: Union[Note, Deletion]) -> bytes:
    """Return a record as JSON; a long error loses its end."""
    if isinstance(record, Note):
        record = replace(record, error=record.error[:MOST_CHARACTERS])
    return json.dumps(asdict(record), indent=2).encode() + b"\n"


def iso(moment: Optional[float]) -> str:
    """Return seconds since 1970 as `2026-01-31T23:59:59Z`; '' for None."""
    return "" if moment is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def moment(text: str) -> float:
    """Return the seconds since 1970 of `2026-01-31T23:59:59Z`, also with a fraction, which is dropped.

    Raises ValueError.
    """
    match = _MOMENT.match(text)
    if not match or not text.endswith("Z"):
        raise ValueError("%r does not match 2026-01-31T23:59:59Z" % text[:40])
    return float(calendar.timegm(time.strptime(match.group(), "%Y-%m-%dT%H:%M:%S")))


def seconds(text: str) -> int:
    """Return the seconds of `28800s`; raises ValueError for any other text, also for none."""
    match = _DURATION.fullmatch(text)
    if not match or not 0 < int(match.group(1)) <= LONGEST:
        raise ValueError("%r does not match 28800s" % text[:40])
    return int(match.group(1))


def expiry(metadata: Mapping[str, str], created: Optional[float]) -> Optional[float]:
    """Return when a node ends at the latest, in seconds since 1970; None for never, or not known yet.

    `created` is when it was created, None if that is not known. Raises ValueError for metadata that is wrong.
    """
    if EXPIRES in metadata:
        return moment(metadata[EXPIRES])
    if TTL not in metadata:
        return None
    length = seconds(metadata[TTL])
    return None if created is None else created + length


def idle_limit(metadata: Mapping[str, str]) -> Optional[int]:
    """Return the seconds without activity after which a node ends; None for no such end.

    Raises ValueError.
    """
    return seconds(metadata[IDLE]) if IDLE in metadata else None
