"""Defines the records of a run in the bucket: the request, each attempt, the verdict.

A field added later has a default, and readers skip fields that they do not know; `schema` changes only when
older readers would be wrong.
"""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, TypeVar

import msgspec

from tpuctl import bucket_objects, clock, upkeep
from tpuctl.bucket_objects import (
    AttemptNumber,
    BadObjectError,
    Count,
    ExitCode,
    Hosts,
    Label,
    Line,
    ResourceName,
    Sha256,
    Text,
    Word,
    WorkerNumber,
)
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import UsageError, cause
from tpuctl.host.worker.records import (
    IMAGE,
    LARGEST_STOP,
    MODULE,
    SCRIPT,
    SETUP_TIMEOUT,
    StopRequest,
    WorkerStatus,
)
from tpuctl.nodes import CLOUD_TPU, Node, NodeId
from tpuctl.provenance import HostEnvironment, Results, Versions
from tpuctl.recovery import Lease, Machine, Restarts

SCHEMA = 1

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
RunName = Annotated[str, msgspec.Meta(pattern=rf"\A{NAME.pattern}\Z")]

ORDERED_LOGS = 2
"""Layout of logs whose pieces are named by their time: host/worker/records.py."""
NOT_STORED = "(not stored)"
"""Stands in run.json for the value of a variable."""

SUCCEEDED, FAILED, PREEMPTED, LOST, STOPPED = "succeeded", "failed", "preempted", "lost", "stopped"
MAINTENANCE = "maintenance"

UNSTARTED = "not started"
"""Cause of a failure of which no script has started: the same submission may start the run again."""

BY_WORKERS, BY_MACHINE, BY_SILENCE = "workers", "machine", "silence"
"""Who said how a run ended, the most credible first: docs/runs.md."""
RANKS = {BY_SILENCE: 1, BY_MACHINE: 2, BY_WORKERS: 3}
"""A verdict gives way to one of a higher rank."""


class Git(msgspec.Struct, frozen=True):
    """The commit that the script's folder was at."""

    commit: Label
    diff: Annotated[str, msgspec.Meta(max_length=1 << 20)]
    """How the bundle's files differ from those of the commit; empty when they do not."""


class Run(msgspec.Struct, frozen=True):
    """run.json: the request; immutable."""

    run: RunName
    created: str
    submitter: Label
    script: Line
    """Path of a script or a notebook inside the bundle; name of a module, or of a command."""
    arguments: Annotated[tuple[Text, ...], msgspec.Meta(max_length=10_000)]
    """Arguments of the program; `***` for what looks like a secret."""
    bundle_sha256: Sha256
    framework: Label
    accelerator: Label
    dependencies: Annotated[tuple[Line, ...], msgspec.Meta(max_length=1000)]
    environment: Annotated[dict[Line, Text], msgspec.Meta(max_length=1000)]
    """Variables of --env and of the header: NOT_STORED, or the value if the user asked for that."""
    dataset: PinnedDataset | None = None
    git: Git | None = None
    requires_python: str = ""
    """Versions of Python that the header asks for, as in PEP 440; empty for any."""
    requirements: str = ""
    """Path of the lock file inside the bundle; empty for none."""
    packages: Word = IMAGE
    """IMAGE or OWN, as the header says."""
    python: Line = ""
    """Version of Python that runs the script; empty for any that it requires."""
    python_archives: Annotated[dict[Line, Sha256], msgspec.Meta(max_length=100)] = {}
    """Interpreters of the bucket that it may run on: version -> SHA-256 of the archive."""
    setup: Text = ""
    """Command that each host runs before the script, without what looks like a secret; empty for none."""
    token: Label = ""
    """Random: tells the record of one submit from that of another that asks for the same."""
    restarts: Restarts = Restarts()
    machine: Machine | None = None
    """What it is restarted on; None in records of earlier versions, which are not restarted."""
    unpacked_size: Count = 0
    """Most bytes that the bundle unpacks to."""
    wheelhouse: Line = ""
    """Folder of wheels inside the bundle; empty for none."""
    setup_timeout: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = SETUP_TIMEOUT
    """Seconds that `setup` may take."""
    data_bucket: Label = ""
    """Where its dataset is; empty where it was not recorded."""
    not_kept: Annotated[tuple[Line, ...], msgspec.Meta(max_length=1000)] | None = None
    """Variables whose values hosts do not keep for a reboot; None where it was not recorded."""
    seeds: Annotated[dict[Line, Line], msgspec.Meta(max_length=1000)] = {}
    """Seeds among the arguments and variables: the option or the variable -> its value."""
    of_header: Annotated[tuple[Line, ...], msgspec.Meta(max_length=1000)] = ()
    """Variables that have the value in the script's header, which the bundle has."""
    pins: Versions = {}
    """Versions that packages have to have: those of the run that this one repeats, or of a uv.lock."""
    listed_in: Line = ""
    """Files of the project that list the dependencies; empty for the header."""
    constraints: Annotated[tuple[Line, ...], msgspec.Meta(max_length=10_000)] = ()
    """Requirements that hold for a package if it is installed."""
    sources: Annotated[tuple[Line, ...], msgspec.Meta(max_length=100)] = ()
    """Options of pip: where packages come from besides the hosts' own index."""
    origin: Annotated[str, msgspec.Meta(pattern=rf"\A({NAME.pattern})?\Z")] = ""
    """The run that this one repeats; empty for none."""
    kind: Word = SCRIPT
    """SCRIPT, MODULE, SHELL, COMMAND or NOTEBOOK."""
    directory: Line = ""
    """Working folder inside the bundle; empty for its own."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for a time or a dataset that none can have."""
        clock.parse(self.created)
        if self.dataset and not self.dataset.is_valid:
            raise ValueError("it names no version of a dataset")
        if self.directory.startswith("/") or ".." in self.directory.split("/"):
            raise ValueError("its working folder is outside of its code")

    @property
    def command(self) -> tuple[str, ...]:
        """What is run, in words: the program and its arguments."""
        return (*(("-m",) if self.kind == MODULE else ()), self.script, *self.arguments)


class Slice(msgspec.Struct, frozen=True):
    """One node of several that an attempt spans."""

    name: ResourceName
    uid: Label


class Tpu(msgspec.Struct, frozen=True):
    """The node of an attempt, as every provider can describe it."""

    name: ResourceName
    uid: Label
    project: ResourceName
    zone: ResourceName
    accelerator: Label
    runtime: Label
    hosts: Hosts
    spot: bool
    provider: Label = CLOUD_TPU
    slices: Annotated[tuple[Slice, ...], msgspec.Meta(max_length=256)] = ()
    """The nodes of a multislice TPU, whose hosts are those of its slices, in order; empty for one node."""

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for slices that no such TPU has."""
        if self.slices and self.hosts % len(self.slices):
            raise ValueError("its hosts are not those of its slices")
        if len({part.name for part in self.slices}) < len(self.slices):
            raise ValueError("two of its slices are one")

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
            slices=tuple(Slice(part.name, part.uid) for part in node.id.slices),
        )

    @property
    def id(self) -> NodeId:
        """Which node it is."""
        whole = NodeId(self.provider, self.project, self.zone, self.name, self.uid)
        if not self.slices:
            return whole
        parts = tuple(replace(whole, name=part.name, uid=part.uid) for part in self.slices)
        return replace(whole, slices=parts, slice_hosts=self.hosts // len(parts))

    @property
    def size(self) -> str:
        """Its type, with the number of slices where there are several: `2 x v5litepod-16`."""
        return f"{len(self.slices)} x {self.accelerator}" if self.slices else self.accelerator


class Attempt(msgspec.Struct, frozen=True):
    """attempt.json: one start of the run on one machine; immutable."""

    attempt: AttemptNumber
    created: str
    tpu: Tpu
    workers: Annotated[tuple[WorkerNumber, ...], msgspec.Meta(min_length=1, max_length=4096)]
    """The workers that run the script."""
    token: Label = ""
    """Random, as that of the run."""
    login: Label = ""
    """The user on the hosts whose home holds the attempt's files; empty where it was not recorded."""
    log_layout: Annotated[int, msgspec.Meta(ge=1, le=ORDERED_LOGS)] = 1
    """Where the pieces of logs are: 1 for a folder of each worker, ORDERED_LOGS for one in order of time."""
    price: RecordedPrice | None = None
    """What its node cost per hour when it was recorded; None where that was not known without asking."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for a time or workers that none can have."""
        clock.parse(self.created)
        if list(self.workers) != sorted(set(self.workers)):
            raise ValueError("its workers are not in order")
        if self.tpu.slices and self.workers[-1] >= self.tpu.hosts:
            raise ValueError("its slices do not have its workers")


class Verdict(msgspec.Struct, frozen=True):
    """verdict.json: how the run ended, and the evidence; only better evidence replaces it."""

    run: RunName
    outcome: Word
    """succeeded, failed, preempted, maintenance, stopped or lost"""
    attempt: AttemptNumber
    decided: str
    evidence: Line
    exit_code: ExitCode | None = None
    """The failed script's own exit code."""
    basis: Word | None = None
    """BY_WORKERS, BY_MACHINE or BY_SILENCE; None in records of earlier versions."""
    silent: Annotated[tuple[WorkerNumber, ...], msgspec.Meta(max_length=4096)] = ()
    """The workers whose silence is part of the evidence: a later status of theirs refutes it."""
    stopped_by: Label = ""
    """The account that asked to stop the run; empty for any other end."""
    ended: str = ""
    """When the last word of a worker was written, by the bucket's clock; empty where it was not recorded."""
    tpu: Tpu | None = None
    """The node of the attempt; None where it was not recorded."""
    cause: Label = ""
    """Why the run failed, where that was recognized: UNSTARTED, or records.OUT_OF_MEMORY and others.

    Of one that was stopped while it was to be started again: how it had ended, such as PREEMPTED.
    """
    last_line: Line = ""
    """The last line that the failed script printed."""
    worker: WorkerNumber | None = None
    """The worker that failed or was lost first; None where that is not one worker's end."""
    checkpoint: Line = ""
    """The last committed checkpoint at the time; of runs that may be restarted."""
    restarts: bool = False
    """Whether another attempt is to follow."""
    started: str = ""
    """When the attempt was recorded, by the bucket's clock; empty where it was not recorded."""
    begun: str | None = None
    """When its last worker left the line of the node, by the host's clock; empty if one has not done so, None
    where it was not recorded."""
    price: RecordedPrice | None = None
    """That of the attempt."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for a time that no clock shows."""
        clock.parse(self.decided)
        clock.parse(self.ended or self.decided)
        clock.parse(self.started or self.decided)
        clock.parse(self.begun or self.decided)

    @property
    def is_unstarted(self) -> bool:
        """Whether its submission was killed before any script had started."""
        return self.outcome == FAILED and self.cause == UNSTARTED

    @property
    def may_be_followed(self) -> bool:
        """Whether another attempt may follow it: by itself, or by the same submission."""
        return self.restarts or self.is_unstarted

    @property
    def rank(self) -> int:
        """How credible its evidence is; earlier versions called runs lost by silence alone."""
        basis = self.basis or (BY_SILENCE if self.outcome == LOST else BY_WORKERS)
        return RANKS.get(basis, RANKS[BY_WORKERS])


LARGEST: dict[type, int] = {
    Run: 8 << 20,  # holds up to a million characters of a diff
    Attempt: 256 << 10,  # 4,096 workers, one a line
    Verdict: 256 << 10,
    WorkerStatus: 64 << 10,
    StopRequest: LARGEST_STOP,
    Lease: 16 << 10,
    upkeep.Notes: upkeep.LARGEST_NOTES,
    HostEnvironment: 512 << 10,
    Results: 16 << 20,  # of names in Chinese, \\u escaped by other writers
}
"""Record -> most bytes of its object."""


Record = TypeVar("Record")

OPEN = "application/json; restarts=1"
"""Content type of a verdict that another attempt may follow: a listing tells by it."""


_OWNED = re.compile(r"application/json; owner=([\x21-\x7e]{1,256})")


def run_type(run: Run) -> str:
    """Return the content type of run.json: a listing tells by it whose the run is."""
    label = f"application/json; owner={run.machine.owner if run.machine else ''}"
    return label if _OWNED.fullmatch(label) else "application/json"


def read_run_type(text: str) -> str:
    """Return the owner in a run's content type; empty for any other type."""
    match = _OWNED.fullmatch(text)
    return match[1] if match else ""


_VERDICT_TYPE = re.compile(r"application/json; outcome=([a-z]{1,40}); basis=(workers|machine)")


def verdict_type(verdict: Verdict) -> str:
    """Return the content type of verdict.json: a listing tells by it how the run ended, and who says so."""
    if verdict.may_be_followed:
        return OPEN
    label = f"application/json; outcome={verdict.outcome}; basis={verdict.basis}"
    return label if _VERDICT_TYPE.fullmatch(label) else "application/json"


LABELS, SPENT = "tpuctl-labels", "tpuctl-spent"
"""Metadata of run.json and of verdict.json: a listing tells by them what a run has cost, and to whom."""
_SPENT = ("attempt", "decided", "tpu", "price", "started", "begun", "ended", "cause")
MOST_METADATA = 4096
"""Bytes of one entry; the service takes 8 KiB in all."""


def run_metadata(run: Run) -> dict[str, str]:
    """Return the metadata of run.json: the labels of its machine."""
    return _entry(LABELS, dict(run.machine.labels) if run.machine else {})


def verdict_metadata(verdict: Verdict) -> dict[str, str]:
    """Return the metadata of verdict.json: what a run with one attempt has used; else none."""
    if verdict.attempt > 1:
        return {}
    return _entry(SPENT, {name: getattr(verdict, name) for name in _SPENT})


def _entry(key: str, value: object) -> dict[str, str]:
    text = msgspec.json.encode(value)
    return {key: text.decode()} if len(text) <= MOST_METADATA else {}


def read_run_metadata(metadata: Mapping[str, str]) -> dict[str, str] | None:
    """Return the labels that the metadata of a run's record say; None where they say none."""
    return _read_entry(metadata.get(LABELS, ""), dict[Label, Label])


def read_verdict_metadata(metadata: Mapping[str, str], run: str, outcome: str) -> Verdict | None:
    """Return as much of a verdict as its metadata say; None where they say nothing."""
    said = _read_entry(metadata.get(SPENT, ""), dict[str, object])
    try:
        return msgspec.convert({**(said or {}), "run": run, "outcome": outcome, "evidence": ""}, Verdict)
    except (msgspec.ValidationError, ValueError):
        return None


def _read_entry(text: str, kind: type[Record]) -> Record | None:
    try:
        return msgspec.json.decode(text.encode(), type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def read_verdict_type(text: str) -> tuple[str, str] | None:
    """Return outcome and basis in a verdict's content type; None for any other type."""
    match = _VERDICT_TYPE.fullmatch(text)
    return (match[1], match[2]) if match else None


class _Versioned(msgspec.Struct):
    """The field that every record has, also one of another schema."""

    schema: int


def encode(record: object) -> bytes:
    """Return a record as indented JSON, for people who look into the bucket; its bounds are not checked."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode(
    data: bytes, kind: type[Record], name: str, check: Callable[[Record], None] | None = None
) -> Record:
    """Return the record in `data`, without fields that this version does not know.

    `check` raises ValueError for a record of another place. Raises BadObjectError that names the object for
    another schema, a missing field, a wrong type, or a value out of bounds.
    """
    try:
        if bucket_objects.decode(data, _Versioned).schema != SCHEMA:
            raise bucket_objects.DecodeError("it has another schema")
        return bucket_objects.decode(data, kind, check)
    except bucket_objects.DecodeError as error:
        reason = f"is not a {kind.__name__} record of schema {SCHEMA}: {error}"
        raise BadObjectError(name, reason) from cause(error)


def check_status(status: WorkerStatus, attempt: int, worker: int) -> None:
    """Raise ValueError unless a status is this worker's: the record on the host has no bounds of its own."""
    if (status.attempt, status.worker) != (attempt, worker):
        raise ValueError("it is the status of another worker")
    for time in (status.heartbeat, status.started or status.heartbeat, status.finished or status.heartbeat):
        clock.parse(time)
    msgspec.convert(status.state, Word)
    labels = (
        status.tpu_uid, status.signal, status.stopped, status.supervisor, status.seal, status.cause,
        status.stopped_by, status.token,
    )  # fmt: skip
    msgspec.convert(labels, tuple[Label, ...])
    msgspec.convert((status.pid, status.log_chunks, status.ahead), tuple[Count, ...])
    msgspec.convert((status.peer, status.quiet), tuple[WorkerNumber | None, Count | None])
    msgspec.convert((status.error, status.tail, status.refusal), tuple[Line, Line, Line])
    msgspec.convert(status.exit_code, ExitCode | None)


def submitter() -> str:
    """Return who submits runs from here, as their records say it: the user and this machine."""
    return f"{getpass.getuser()}@{platform.node()}"


def check_name(name: str) -> str:
    """Return a run's name; raises UsageError when it is not valid."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a run.", hint="Use lower-case letters, digits and dashes, 63 at most."
        )
    return name
