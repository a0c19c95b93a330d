"""Every record that tpuctl reads from a bucket: a valid one, and the function that reads it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.flows.runs.records import ATTEMPT, CREATED, STATUS
from tests.worker.host import SPEC
from tpuctl import runs
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.bucket_objects.decoding import DecodeError, decode
from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import Options, TokenOptions
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
from tpuctl.data.tokens.vocabulary import parse_vocabulary
from tpuctl.datasets import DatasetRef, PinnedDataset
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.beam.worker import Failure
from tpuctl.flows.datasets.commit import Moves
from tpuctl.flows.runs.evidence.witnesses import HostAnswer, read_answer
from tpuctl.flows.runs.evidence.words import HostState
from tpuctl.keeper.records import Deletion, Note
from tpuctl.keeper.records import encode as encode_of_keeper
from tpuctl.worker.records import WorkerStatus, read_spec
from tpuctl.worker.records import encode as encode_of_host


@dataclass(frozen=True)
class Kind:
    """One kind of object: `read` returns its record, or raises the one error that its callers know."""

    valid: bytes
    read: Callable[[bytes], object]
    error: type[Exception] = BadObjectError


RUN = runs.Run(
    "r1", CREATED, "ada@laptop", "job.py", ("--epochs", "3"), "0" * 64, "jax", "v3-32", ("numpy",),
    {"RATE": "0.1"}, PinnedDataset("pets", "1.0.0", "0" * 64), runs.Git("0" * 40, "diff"),
)  # fmt: skip
VERDICT = runs.Verdict(
    "r1", runs.FAILED, 1, CREATED, "worker 0's script ended with exit code 3", 3, runs.BY_SILENCE, (0, 2)
)
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


KINDS = {
    "run.json": Kind(runs.encode(RUN), lambda data: runs.decode(data, runs.Run, "run.json", check_run)),
    "attempt.json": Kind(runs.encode(ATTEMPT), lambda data: runs.decode(data, runs.Attempt, "attempt.json")),
    "verdict.json": Kind(
        runs.encode(VERDICT), lambda data: runs.decode(data, runs.Verdict, "verdict.json", check_run)
    ),
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
    "spec.json": Kind(
        encode_of_host(SPEC),
        lambda data: read_spec(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")),
        ValueError,
    ),
}
