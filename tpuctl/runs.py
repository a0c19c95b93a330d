"""The records of a run, as they stand in the bucket: what was asked, each attempt, how it ended."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from tpuctl.errors import StateError, UsageError

SCHEMA = 1

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

SUCCEEDED, FAILED, PREEMPTED, LOST, STOPPED = "succeeded", "failed", "preempted", "lost", "stopped"


class DatasetRef(msgspec.Struct, frozen=True):
    """The dataset of a run, pinned by its manifest."""

    name: str
    version: str
    manifest_sha256: str


class Git(msgspec.Struct, frozen=True):
    """Where the code stood."""

    commit: str
    diff: str
    """Uncommitted changes of tracked files against the commit; empty when there were none."""


class Run(msgspec.Struct, frozen=True):
    """run.json: what was asked; immutable."""

    run: str
    created: str
    submitter: str
    script: str
    """Path of the script inside the bundle."""
    arguments: tuple[str, ...]
    bundle_sha256: str
    framework: str
    accelerator: str
    dependencies: tuple[str, ...]
    environment: dict[str, str]
    """What --env added, values of secrets replaced."""
    dataset: DatasetRef | None = None
    git: Git | None = None
    schema: int = SCHEMA


class Tpu(msgspec.Struct, frozen=True):
    """The machine of an attempt; says nothing about which API it came from."""

    name: str
    uid: str
    project: str
    zone: str
    accelerator: str
    runtime: str
    hosts: int
    spot: bool


class Attempt(msgspec.Struct, frozen=True):
    """attempt.json: one start of the run on one machine; immutable."""

    attempt: int
    created: str
    tpu: Tpu
    workers: tuple[int, ...]
    """The workers that run the script."""
    schema: int = SCHEMA


class Verdict(msgspec.Struct, frozen=True):
    """verdict.json: how the run ended, and the evidence."""

    run: str
    outcome: str
    """succeeded, failed, preempted, lost or stopped"""
    attempt: int
    decided: str
    evidence: str
    exit_code: int | None = None
    """The failed script's own exit code."""
    schema: int = SCHEMA


class _Versioned(msgspec.Struct):
    """The field that every record has, also one of another schema."""

    schema: int


Record = TypeVar("Record")


def encode(record: object) -> bytes:
    """Return a record as indented JSON, for people who look into the bucket."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode(data: bytes, kind: type[Record], name: str) -> Record:
    """Return the record in `data`; raises StateError naming the object when it is not one of this schema."""
    try:
        if msgspec.json.decode(data, type=_Versioned).schema != SCHEMA:
            raise msgspec.ValidationError("it is of another schema")
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StateError(
            f"{name} is not a {kind.__name__} record of schema {SCHEMA}: {error}.",
            hint="It was written by another version of tpuctl, or by hand.",
        ) from error


def check_name(name: str) -> str:
    """Return a run's name when it can be one; raises UsageError otherwise."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a run.", hint="Use lower-case letters, digits and dashes, 63 at most."
        )
    return name
