"""Every record that tpuctl reads from a bucket: a valid one, and the function that reads it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import msgspec

from tests.flows.runs.records import ATTEMPT, CREATED, STATUS
from tests.host.worker.host import SPEC
from tpuctl import runs, upkeep
from tpuctl.bucket_objects import BadObjectError, DecodeError, decode
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.data.options import BadRecord, Options, TokenOptions
from tpuctl.data.output.manifest import (
    FileEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    decode_manifest,
    encode_manifest,
)
from tpuctl.data.output.shards import ShardResult
from tpuctl.data.schema.features import Image, Label, Other, Tensor, Text
from tpuctl.data.tokens import parse_vocabulary
from tpuctl.datasets import DatasetRef, PinnedDataset
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.beam.worker import Failure
from tpuctl.flows.datasets.upload import Moves
from tpuctl.flows.runs.checkpoints import Index, StepMetadata
from tpuctl.flows.runs.evidence.decision import HostState
from tpuctl.flows.runs.evidence.witnesses import HostAnswer, read_answer
from tpuctl.host import timing
from tpuctl.host.keeper.records import Deletion, Note
from tpuctl.host.keeper.records import encode as encode_of_keeper
from tpuctl.host.worker.control import Turn, _Entry
from tpuctl.host.worker.peers import END, Decision, DecisionObject, Neighbour
from tpuctl.host.worker.records import FINISHED, StopRequest, WorkerStatus, check_stop, read_spec, read_stop
from tpuctl.host.worker.records import encode as encode_of_host
from tpuctl.nodes import DataDisk
from tpuctl.provenance import HostEnvironment, ResultFile, Results
from tpuctl.recovery import Lease, Machine, Restarts
from tpuctl.upkeep import Notes, Removal, encode_removal, find_removal


@dataclass(frozen=True)
class Kind:
    """One kind of object: `read` returns its record, or raises the one error that its callers know."""

    valid: bytes
    read: Callable[[bytes], object]
    error: type[Exception] = BadObjectError


RUN = runs.Run(
    "r1", CREATED, "ada@laptop", "job.py", ("--epochs", "3"), "0" * 64, "jax", "v3-32", ("numpy",),
    {"RATE": "0.1"}, PinnedDataset("pets", "1.0.0", "0" * 64), runs.Git("0" * 40, "diff"),
    restarts=Restarts(None, 1), machine=Machine(
        "v3-32", ("europe-west4-a",), True, "tpu-ubuntu2204-base", "ada@example.com",
        scopes=("cloud-platform",),
        tags=("trainer",), data_disks=(DataDisk("photos", read_only=True),), labels={"team": "vision"},
        metadata={"color": "blue"}, startup_script="#!/bin/sh\n", max_price="12.50",
    ),
    seeds={"--seed": "7"}, of_header=("RATE",), pins={"numpy": "1.26.4"}, origin="r0",
)  # fmt: skip
PRICE = RecordedPrice("12.88", "USD", "the list", CREATED)
PRICED = msgspec.structs.replace(ATTEMPT, price=PRICE)
ENVIRONMENT = HostEnvironment(
    "3.10.12", "cpython", "Linux", "6.1", "x86_64", {"numpy": "1.26.4"}, {"jax": "0.4.30"},
    {"mine": "git+https://example.com/mine@0"},
)  # fmt: skip
RESULT_FILE = ResultFile("checkpoints/ckpt-1.index", 3, "AAAAAA==", "AAAAAAAAAAAAAAAAAAAAAA==", 17)
RESULTS = Results("r1", 1, "succeeded", CREATED, 2, 5, "0" * 64, (RESULT_FILE,), 1)
VERDICT = runs.Verdict(
    "r1", runs.FAILED, 1, CREATED, "worker 0's script ended with exit code 3", 3, runs.BY_SILENCE, (0, 2),
    begun=CREATED, price=PRICE,
)  # fmt: skip
NOTES = Notes(
    "r1", {"keep": "", "team": "vision"}, (upkeep.Note("it was too hot", "ada@example.com", CREATED, "a"),)
)
STOP = StopRequest("r1", "ada@laptop", CREATED, 30)
LEASE = Lease("r1", 2, "0f" * 16, "ada@laptop", 60)
SHARD = ShardEntry("pets-train.tfrecord-00000-of-00001", 2, 100, "AAAAAA==")
BAD = BadRecord("a.csv", "is empty", 3)
MANIFEST = Manifest(
    schema=2,
    name="pets",
    version="1.0.0",
    features={
        "image": Image((None, 32, 3)),
        "label": Label(("cat", "dog")),
        "text": Text(),
        "boxes": Tensor("float32", (None, 4)),
        "sound": Other({"pythonClassName": "Audio", "audio": {"shape": {"dimensions": ["-1"]}}}),
    },
    classes=("cat", "dog"),
    splits={"train": SplitEntry(2, 100, (SHARD,))},
    source=SourceEntry(
        "csv", "0" * 64, 1, Options({"a": "int"}, "b", (32, 32), TokenOptions("words", 8)), 1, (BAD,)
    ),
    files={"features.json": FileEntry(10, "AAAAAA==")},
    tpuctl="0.9",
)
PETS = DatasetRef("pets", "1.0.0")


def check_run(record: runs.Run | runs.Verdict) -> None:
    if record.run != "r1":
        raise ValueError("it is of another run")


class Stored:
    """A bucket in which every object has these bytes, for a worker that reads them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, name: str, limit: int) -> tuple[int, bytes]:
        return 1, self._data[:limit]


def accepted(record: object) -> object:
    """What a worker makes of an object; one that it takes for absent is an error here."""
    if not record:
        raise ValueError("it counts as absent")
    return record


def peers_decision(data: bytes) -> DecisionObject:
    return DecisionObject(Stored(data), SPEC)  # type: ignore[arg-type]  # no real bucket


def has_ended(data: bytes) -> bool:
    return Neighbour(Stored(data), replace(SPEC, participants=(0, 1)))._has_ended("x")  # type: ignore[arg-type]


def is_said_to_run(data: bytes) -> bool:
    turn = Turn(Stored(data), SPEC, "/nowhere")  # type: ignore[arg-type]
    with patch.object(timing, "NEIGHBOUR_SILENCE", math.inf):  # whenever it was written
        return turn._is_said_to_run(_Entry("r2", "1", 0.0))


KINDS = {
    "run.json": Kind(runs.encode(RUN), lambda data: runs.decode(data, runs.Run, "run.json", check_run)),
    "attempt.json": Kind(runs.encode(PRICED), lambda data: runs.decode(data, runs.Attempt, "attempt.json")),
    "verdict.json": Kind(
        runs.encode(VERDICT), lambda data: runs.decode(data, runs.Verdict, "verdict.json", check_run)
    ),
    "environment.json": Kind(
        runs.encode(ENVIRONMENT), lambda data: runs.decode(data, HostEnvironment, "environment.json")
    ),
    "lease.json": Kind(runs.encode(LEASE), lambda data: runs.decode(data, Lease, "lease.json")),
    "results.json": Kind(runs.encode(RESULTS), lambda data: runs.decode(data, Results, "results.json")),
    "status.json": Kind(
        encode_of_host(STATUS),
        lambda data: runs.decode(
            data, WorkerStatus, "status.json", lambda status: runs.check_status(status, 1, 0)
        ),
    ),
    "answer of a host": Kind(
        msgspec.json.encode(HostAnswer(HostState.GONE, "the host was restarted", STATUS)),
        lambda data: read_answer(data, 1, 0),
        DecodeError,
    ),
    "manifest.json": Kind(encode_manifest(MANIFEST), lambda data: decode_manifest(data, PETS)),
    "note of a staged shard": Kind(
        msgspec.json.encode(ShardResult(SHARD, "0" * 64, 1, (BAD,), {"label": ["cat", 1]})),
        lambda data: decode(data, ShardResult),
        DecodeError,
    ),
    "moves of a commit": Kind(
        msgspec.json.encode(Moves({"a": "b"}, {"features.json": "{}"})),
        lambda data: decode(data, Moves),
        DecodeError,
    ),
    "index of a checkpoint": Kind(
        b'{"metadata": {}, "weight_map": {"a": "model-1", "b": ["model-1", "model-2"]}}',
        lambda data: decode(data, Index),
        DecodeError,
    ),
    "metadata of Orbax": Kind(
        b'{"item_handlers": "x.Y", "init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2, "custom": {}}',
        lambda data: decode(data, StepMetadata),
        DecodeError,
    ),
    "failure of a Beam worker": Kind(
        msgspec.json.encode(Failure("usage", "it failed", "retry", "w1", (BAD,))),
        lambda data: decode(data, Failure).error(),
        DecodeError,
    ),
    "deletion by a keeper": Kind(
        encode_of_keeper(Deletion("p", "z", "n1", "1", "", "idle", CREATED, "", CREATED)),
        lambda data: decode(data, Deletion),
        DecodeError,
    ),
    "note of a keeper": Kind(
        encode_of_keeper(Note(0, CREATED, activity="run r1")), lambda data: decode(data, Note), DecodeError
    ),
    "vocabulary": Kind(
        b"[PAD]\n[UNK]\na\nb\n", lambda data: parse_vocabulary(data, "words", Path("vocab.txt")), UsageError
    ),
    "notes.json": Kind(runs.encode(NOTES), lambda data: runs.decode(data, Notes, "notes.json", check_run)),
    "removal in the place of run.json": Kind(
        encode_removal(Removal("r1", "ada@example.com", CREATED, (1, 2), b"{}")),
        lambda data: accepted(find_removal(data, "r1")),
        ValueError,
    ),
    "stop.json": Kind(
        encode_of_host(STOP),
        lambda data: runs.decode(data, StopRequest, "stop.json", lambda record: check_stop(record, "r1")),
    ),
    "stop.json on a host": Kind(encode_of_host(STOP), lambda data: read_stop(data, "r1"), ValueError),
    "decision of an attempt's workers": Kind(
        peers_decision(b"")._encoded(Decision(END, 1, "its script failed")),
        lambda data: accepted(peers_decision(data).read()),
        ValueError,
    ),
    "status of the next worker": Kind(
        encode_of_host(replace(STATUS, state=FINISHED)),
        lambda data: accepted(has_ended(data)),
        ValueError,
    ),
    "status of what is ahead in a line": Kind(
        encode_of_host(replace(STATUS, state="running")),
        lambda data: accepted(is_said_to_run(data)),
        ValueError,
    ),
    "spec.json": Kind(
        encode_of_host(SPEC),
        lambda data: read_spec(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")),
        ValueError,
    ),
}
