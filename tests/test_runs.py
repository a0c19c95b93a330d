"""The records of a run: encoded, decoded, and refused when they are damaged."""

from __future__ import annotations

import pytest

from tpuctl import runs
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import StateError, UsageError
from tpuctl.nodes import NodeId
from tpuctl.worker.records import WorkerStatus

TPU = runs.Tpu("n1", "77", "p", "z", "v3-8", "tpu-vm-tf-2.18.0", 1, spot=False)
RECORDS = [
    runs.Run(
        "r1",
        "2026-01-02T03:04:05Z",
        "ada@laptop",
        "job.py",
        ("--epochs", "3"),
        "ab" * 32,
        "tensorflow",
        "v3-8",
        ("numpy",),
        {"RATE": "0.1", "ÄÖ": "\n\"'"},
        PinnedDataset("d", "1.0.0", "cd" * 32),
        runs.Git("0" * 40, ""),
    ),
    runs.Run("r1", "2026-01-02T03:04:05Z", "", "job.py", (), "ab" * 32, "jax", "v6e-8", (), {}),
    runs.Attempt(1, "2026-01-02T03:04:05Z", TPU, (0, 1)),
    WorkerStatus(0, 1, "77", "finished", "2026-01-02T03:04:05Z", exit_code=137, signal="SIGKILL"),
    runs.Verdict("r1", runs.FAILED, 1, "2026-01-02T03:04:05Z", "it failed", 3),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_decoded_as_it_was_encoded(record: object) -> None:
    data = runs.encode(record)
    assert runs.decode(data, type(record), "x.json") == record
    assert data.endswith(b"}\n")
    assert b'\n  "schema": 1' in data, "the schema is written, though it is a default"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b"\xff", b'{"schema": 1}', b'{"schema": "1"}', b"{}", b"\x00" * 10],
)
def test_damaged_records_are_named(data: bytes) -> None:
    with pytest.raises(StateError, match=r"runs/r1/verdict\.json is not a Verdict record of schema 1"):
        runs.decode(data, runs.Verdict, "runs/r1/verdict.json")


def test_a_record_of_another_schema_is_refused_even_when_it_looks_alike() -> None:
    data = runs.encode(RECORDS[-1]).replace(b'"schema": 1', b'"schema": 2')
    with pytest.raises(StateError, match="it has another schema") as refused:
        runs.decode(data, runs.Verdict, "verdict.json")
    assert "another version of tpuctl" in refused.value.hint


def test_a_missing_field_is_named() -> None:
    data = runs.encode(RECORDS[-1]).replace(b'"outcome"', b'"result"')
    with pytest.raises(StateError, match="missing required field `outcome`"):
        runs.decode(data, runs.Verdict, "verdict.json")


def test_an_attempt_names_its_node_also_without_a_provider() -> None:
    """Records written before this field existed are of the Cloud TPU API."""
    data = runs.encode(RECORDS[2]).replace(b'"provider"', b'"colour"')
    attempt = runs.decode(data, runs.Attempt, "attempt.json")
    assert attempt.tpu.id == NodeId("cloud-tpu", "p", "z", "n1", "77")


def test_a_field_that_a_later_version_added_is_skipped() -> None:
    data = runs.encode(RECORDS[-1]).replace(b'"schema": 1', b'"schema": 1, "colour": "red"')
    assert runs.decode(data, runs.Verdict, "verdict.json") == RECORDS[-1]


def test_a_status_is_finished_when_its_state_says_so() -> None:
    assert not WorkerStatus(0, 1, "77", "running", "now").is_finished
    assert WorkerStatus(0, 1, "77", "finished", "now").is_finished


@pytest.mark.parametrize("name", ["a", "0", "my-run-1", "x" * 63])
def test_valid_names_of_runs(name: str) -> None:
    assert runs.check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a/b", "..", "a b", "x" * 64, "a\n", "ä"])
def test_invalid_names_of_runs_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        runs.check_name(name)
