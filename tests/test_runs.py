"""The records of a run: encoded, decoded, and refused when they are damaged."""

from __future__ import annotations

import getpass
import platform
from dataclasses import replace

import msgspec
import pytest

from tpuctl import clock, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import StateError, UsageError
from tpuctl.host.worker.records import LARGEST_STOP, StopRequest, WorkerStatus
from tpuctl.nodes import Node, NodeId, NodeState

TPU = runs.Tpu("n1", "77", "p", "z", "v3-8", "tpu-vm-tf-2.18.0", 1, spot=False)
CREATED = "2026-01-02T03:04:05Z"
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


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\ud800", "{}", "null"])
def test_metadata_that_say_nothing_are_none(text: str) -> None:
    assert runs.read_run_metadata({runs.LABELS: text}) == ({} if text == "{}" else None)
    assert runs.read_verdict_metadata({runs.SPENT: text}, "r1", runs.FAILED) is None


def test_slices_that_no_node_has_are_refused() -> None:
    parts = (runs.Slice("a", "1"), runs.Slice("b", "2"))
    attempt = runs.Attempt(1, CREATED, msgspec.structs.replace(TPU, hosts=2, slices=parts), (0, 1))
    data = runs.encode(attempt)
    assert runs.decode(data, runs.Attempt, "x.json") == attempt
    with pytest.raises(BadObjectError, match="two of its slices are one"):
        runs.decode(data.replace(b'"b"', b'"a"'), runs.Attempt, "x.json")


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


def verdict(outcome: str = runs.FAILED, **fields: object) -> runs.Verdict:
    return runs.Verdict("r1", outcome, 1, CREATED, "it ended", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "change", "error"),
    [
        (RECORDS[0], {"created": "yesterday"}, "'yesterday' does not match"),
        (RECORDS[0], {"dataset": PinnedDataset("d", "1.0", "cd" * 32)}, "it names no version of a dataset"),
        (RECORDS[0], {"dataset": PinnedDataset("D", "1.0.0", "cd" * 32)}, "it names no version of a dataset"),
        (RECORDS[2], {"created": "yesterday"}, "'yesterday' does not match"),
        (RECORDS[2], {"workers": (1, 0)}, "its workers are not in order"),
        (RECORDS[2], {"workers": (0, 0)}, "its workers are not in order"),
        (RECORDS[2], {"workers": (8, 0)}, "its workers are not in order"),
        (RECORDS[2], {"workers": (0, 8, 1)}, "its workers are not in order"),
        (RECORDS[2], {"workers": ()}, "length >= 1"),
        (RECORDS[2], {"log_layout": 0}, ">= 1"),
        (RECORDS[2], {"log_layout": 3}, "<= 2"),
        (RECORDS[4], {"decided": ""}, "'' does not match"),
        (
            RECORDS[4],
            {"decided": "", "ended": CREATED, "started": CREATED, "begun": CREATED},
            "'' does not match",
        ),
        (RECORDS[4], {"ended": "yesterday"}, "'yesterday' does not match"),
        (RECORDS[4], {"started": "yesterday"}, "'yesterday' does not match"),
        (RECORDS[4], {"begun": "yesterday"}, "'yesterday' does not match"),
    ],
)
def test_a_record_that_none_can_have_is_refused(
    record: object, change: dict[str, object], error: str
) -> None:
    data = msgspec.json.encode({**msgspec.to_builtins(record), **change})
    with pytest.raises(StateError, match=error):
        runs.decode(data, type(record), "x.json")


@pytest.mark.parametrize("begun", [None, "", CREATED])
def test_a_verdict_may_lack_the_times_that_were_not_recorded(begun: str | None) -> None:
    ended = verdict(begun=begun)
    assert runs.decode(runs.encode(ended), runs.Verdict, "verdict.json") == ended
    assert (ended.ended, ended.started) == ("", "")


def test_workers_may_be_some_of_a_slice() -> None:
    attempt = runs.Attempt(1, CREATED, TPU, (0, 2, 3))
    assert runs.decode(runs.encode(attempt), runs.Attempt, "attempt.json").workers == (0, 2, 3)


def test_the_record_of_a_node_has_what_the_provider_says_of_it() -> None:
    node = Node(
        id=NodeId("memory", "p", "z", "n1", "77"),
        state=NodeState.READY,
        provider_state="READY",
        accelerator="v3-32",
        runtime="tpu-vm-tf-2.18.0",
        created=CREATED,
        created_at=clock.parse(CREATED).timestamp(),
        addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
        spot=True,
    )
    tpu = runs.Tpu.of(node)
    assert tpu == runs.Tpu("n1", "77", "p", "z", "v3-32", "tpu-vm-tf-2.18.0", 4, spot=True, provider="memory")
    assert tpu.id == node.id
    assert not runs.Tpu.of(replace(node, spot=False)).spot


def test_records_of_earlier_versions_lack_what_was_added() -> None:
    """A default that changes would say of old runs what nobody recorded."""
    of_run: dict[str, object] = {
        "dataset": None, "git": None, "requires_python": "", "requirements": "", "packages": "image",
        "setup": "", "token": "", "machine": None, "unpacked_size": 0, "wheelhouse": "", "data_bucket": "",
        "not_kept": None, "seeds": {}, "of_header": (), "pins": {}, "origin": "",
    }  # fmt: skip
    of_attempt = {"token": "", "login": "", "log_layout": 1, "price": None}
    of_verdict = {
        "exit_code": None, "basis": None, "silent": (), "stopped_by": "", "ended": "", "tpu": None,
        "cause": "", "last_line": "", "worker": None, "checkpoint": "", "restarts": False, "started": "",
        "begun": None, "price": None,
    }  # fmt: skip
    for record, added in ((RECORDS[0], of_run), (RECORDS[2], of_attempt), (RECORDS[4], of_verdict)):
        fields = msgspec.to_builtins(record)
        early = {name: value for name, value in fields.items() if name not in added}
        read = runs.decode(msgspec.json.encode(early), type(record), "x.json")
        assert {name: getattr(read, name) for name in added} == added


@pytest.mark.parametrize(
    ("ended", "is_unstarted", "may_be_followed"),
    [
        (verdict(runs.FAILED, cause=runs.UNSTARTED), True, True),
        (verdict(runs.STOPPED, cause=runs.UNSTARTED), False, False),
        (verdict(runs.FAILED, cause="out of memory"), False, False),
        (verdict(runs.FAILED), False, False),
        (verdict(runs.PREEMPTED, restarts=True), False, True),
        (verdict(runs.SUCCEEDED), False, False),
    ],
)
def test_an_attempt_follows_a_restart_or_a_submission_that_was_killed(
    ended: runs.Verdict, is_unstarted: bool, may_be_followed: bool
) -> None:
    assert ended.is_unstarted is is_unstarted
    assert ended.may_be_followed is may_be_followed


def test_workers_are_believed_before_the_machine_and_the_machine_before_silence() -> None:
    workers, machine, silence = (
        verdict(basis=basis).rank for basis in (runs.BY_WORKERS, runs.BY_MACHINE, runs.BY_SILENCE)
    )
    assert workers > machine > silence > 0
    assert verdict(runs.LOST).rank == silence
    assert verdict(runs.PREEMPTED).rank == workers
    assert verdict(runs.LOST, basis=runs.BY_MACHINE).rank == machine
    assert verdict(runs.LOST, basis="of-a-later-version").rank == workers


@pytest.mark.parametrize(
    ("ended", "content_type", "read"),
    [
        (
            verdict(runs.SUCCEEDED, basis=runs.BY_WORKERS),
            "application/json; outcome=succeeded; basis=workers", ("succeeded", "workers"),
        ),
        (
            verdict(runs.PREEMPTED, basis=runs.BY_MACHINE),
            "application/json; outcome=preempted; basis=machine", ("preempted", "machine"),
        ),
        (verdict(runs.LOST, basis=runs.BY_SILENCE), "application/json", None),
        (verdict(runs.FAILED), "application/json", None),
        (verdict("of a later version", basis=runs.BY_WORKERS), "application/json", None),
        (verdict(runs.PREEMPTED, basis=runs.BY_MACHINE, restarts=True), "application/json; restarts=1", None),
        (
            verdict(runs.FAILED, basis=runs.BY_WORKERS, cause=runs.UNSTARTED),
            "application/json; restarts=1", None,
        ),
    ],
)  # fmt: skip
def test_a_listing_tells_final_verdicts_by_their_content_type(
    ended: runs.Verdict, content_type: str, read: tuple[str, str] | None
) -> None:
    assert runs.verdict_type(ended) == content_type
    assert runs.read_verdict_type(content_type) == read


@pytest.mark.parametrize("text", ["", "text/plain", " application/json; outcome=failed; basis=workers"])
def test_another_content_type_says_nothing(text: str) -> None:
    assert runs.read_verdict_type(text) is None
    assert runs.read_verdict_type("application/json; outcome=failed; basis=workers; x") is None


def test_a_record_of_another_place_is_refused() -> None:
    def check(record: runs.Verdict) -> None:
        if record.run != "r2":
            raise ValueError("it is of another run")

    with pytest.raises(StateError, match=r"^runs/r2/verdict\.json is not a Verdict .*: it is of another run"):
        runs.decode(runs.encode(verdict()), runs.Verdict, "runs/r2/verdict.json", check)


STATUS = WorkerStatus(
    2, 3, "77", "finished", CREATED, started=CREATED, finished=CREATED, pid=9, exit_code=1, signal="SIGKILL",
    error="e", stopped="SIGTERM", stopped_by="ada", ahead=1, cause="c", tail="t", peer=0, log_chunks=4,
    supervisor="s", seal="x",
)  # fmt: skip


def test_a_status_is_that_of_its_worker_and_attempt() -> None:
    runs.check_status(STATUS, 3, 2)
    runs.check_status(WorkerStatus(2, 3, "77", "queued", CREATED), 3, 2)
    for attempt, worker in ((3, 1), (2, 2), (2, 3)):
        with pytest.raises(ValueError, match="it is the status of another worker"):
            runs.check_status(STATUS, attempt, worker)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, "yesterday") for name in ("heartbeat", "started", "finished")),
        ("heartbeat", ""),
        *(("state", state) for state in ("", "Finished", "is finished")),
        *((name, "x" * 257) for name in ("tpu_uid", "signal", "stopped", "supervisor", "seal", "cause")),
        ("stopped_by", "x" * 257),
        *((name, value) for name in ("pid", "log_chunks", "ahead") for value in (-1, 1 << 53)),
        *(("peer", value) for value in (-1, 4096)),
        *((name, "x" * 4097) for name in ("error", "tail")),
        *(("exit_code", value) for value in (-256, 1 << 32)),
    ],
)
def test_a_status_out_of_bounds_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each check has a message of its own
        runs.check_status(replace(STATUS, **{field: value}), 3, 2)  # type: ignore[arg-type]


def test_the_largest_records_are_read() -> None:
    """An object that is larger than its bound is refused unread."""
    price = RecordedPrice("1", "USD", "x" * 256, CREATED, "x" * 256)
    diff = "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * (1 << 20)
    run = msgspec.structs.replace(RECORDS[0], git=runs.Git("0" * 40, diff))  # type: ignore[type-var]
    attempt = runs.Attempt(1, CREATED, TPU, tuple(range(4096)), price=price)
    ended = verdict(silent=tuple(range(4096)), last_line="\N{BLACK CIRCLE}" * 4096, tpu=TPU, price=price)
    status = replace(STATUS, tail="\N{BLACK CIRCLE}" * 4096, error="\N{BLACK CIRCLE}" * 4096)
    for record in (run, attempt, ended, status):
        assert len(runs.encode(record)) <= runs.LARGEST[type(record)]
    assert runs.LARGEST[StopRequest] == LARGEST_STOP


def test_who_submits_is_the_user_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(platform, "node", lambda: "laptop")
    assert runs.submitter() == "ada@laptop"


def test_a_name_that_is_refused_is_told_with_what_is_allowed() -> None:
    with pytest.raises(UsageError, match="'A' cannot name a run") as refused:
        runs.check_name("A")
    assert refused.value.hint == "Use lower-case letters, digits and dashes, 63 at most."
