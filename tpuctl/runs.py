"""Defines the records of a run in the bucket: the request, each attempt, the verdict.

A field added later has a default, and readers skip fields that they do not know; `schema` changes only when
older readers would be wrong.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from tpuctl.datasets import PinnedDataset
from tpuctl.errors import StateError, UsageError
from tpuctl.nodes import CLOUD_TPU, Node, NodeId

SCHEMA = 1

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

SUCCEEDED, FAILED, PREEMPTED, LOST, STOPPED = "succeeded", "failed", "preempted", "lost", "stopped"


class Git(msgspec.Struct, frozen=True):
    """The commit that the script's folder was at."""

    commit: str
    diff: str
    """How the bundle's files differ from those of the commit; empty when they do not."""


class Run(msgspec.Struct, frozen=True):
    """run.json: the request; immutable."""

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
    """Variables of --env, the values of secrets replaced."""
    dataset: PinnedDataset | None = None
    git: Git | None = None
    schema: int = SCHEMA


class Tpu(msgspec.Struct, frozen=True):
    """The node of an attempt, as every provider can describe it."""

    name: str
    uid: str
    project: str
    zone: str
    accelerator: str
    runtime: str
    hosts: int
    spot: bool
    provider: str = CLOUD_TPU

    @classmethod
    def of(cls, node: Node) -> Tpu:
        """Return the record of a node."""
        return cls(
            name=node.id.name,
            uid=node.id.uid,
            project=node.id.project,
            zone=node.id.zone,
            accelerator=node.accelerator,
            runtime=node.runtime,
            hosts=len(node.addresses),
            spot=node.spot,
            provider=node.id.provider,
        )

    @property
    def id(self) -> NodeId:
        """Which node it is."""
        return NodeId(self.provider, self.project, self.zone, self.name, self.uid)


class Attempt(msgspec.Struct, frozen=True):
    """attempt.json: one start of the run on one machine; immutable."""

    attempt: int
    created: str
    tpu: Tpu
    workers: tuple[int, ...]
    """The workers that run the script."""
    schema: int = SCHEMA


class Verdict(msgspec.Struct, frozen=True):
    """verdict.json: how the run ended, and the evidence; create-only."""

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
    """Return the record in `data`, without fields that this version does not know.

    Raises StateError that names the object for another schema, a missing field or a wrong type.
    """
    try:
        if msgspec.json.decode(data, type=_Versioned).schema != SCHEMA:
            raise msgspec.ValidationError("it has another schema")
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StateError(
            f"{name} is not a {kind.__name__} record of schema {SCHEMA}: {error}.",
            hint="It was written by another version of tpuctl, or by hand.",
        ) from error


def check_name(name: str) -> str:
    """Return a run's name; raises UsageError when it is not valid."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a run.", hint="Use lower-case letters, digits and dashes, 63 at most."
        )
    return name
