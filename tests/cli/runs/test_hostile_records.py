"""One bad object in the bucket is one warning line: `runs`, `logs` and `pull` show the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, write_chunk
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cli.session import MOST
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import encode as encode_status

Command = Callable[..., CommandResult]


def record(name: str, **changes: object) -> bytes:
    """run.json of one's own run."""
    run = runs.Run(name, CREATED, runs.submitter(), "job.py", (), "0" * 64, "jax", "v3-32", (), {})
    return json.dumps(msgspec.to_builtins(run) | changes).encode()


def attempt(**changes: object) -> bytes:
    return json.dumps(msgspec.to_builtins(ATTEMPT) | changes).encode()


def verdict(name: str, **changes: object) -> bytes:
    ended = runs.Verdict(name, runs.SUCCEEDED, 1, CREATED, "every script ended")
    return json.dumps(msgspec.to_builtins(ended) | changes).encode()


def put(bucket: Bucket, name: str, data: bytes) -> None:
    bucket.upload(name, [data], "application/json")


@pytest.fixture
def good(bucket: Bucket) -> list[str]:
    """Two runs of one's own that have ended, each with a log."""
    names = ["good-1", "good-2"]
    for name in names:
        run = StoredRun(bucket, name)
        put(bucket, run.paths.record, record(name))
        write_chunk(run.create_attempt(ATTEMPT), 0, 1, f"I am {name}\n")
        put(bucket, run.paths.verdict, verdict(name))
    return names


def rows(result: CommandResult) -> list[str]:
    """The runs that `runs` shows."""
    return [line.split()[0] for line in result.out.splitlines()[1:]]


DEEP = b'{"schema": 1, "run": "bad", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
BAD_RECORDS = {
    # object below runs/: its content
    "empty JSON object": ("bad/run.json", b"{}"),
    "no byte": ("bad/run.json", b""),
    "a time of no clock": ("bad/run.json", record("bad", created="2026-02-31T00:00:00Z")),
    "a year that never comes": ("bad/run.json", record("bad", created="9999-01-01T00:00:00Z")),
    "digits of another script": ("bad/run.json", record("bad", created="٢٠٢٦-01-01T00:00:00Z")),
    "a time that is a number": ("bad/run.json", record("bad", created=10**30)),
    "deep nesting": ("bad/run.json", DEEP),
    "too large": ("bad/run.json", record("bad") + b" " * runs.LARGEST[runs.Run]),
    "too many arguments": ("bad/run.json", record("bad", arguments=["x"] * 10_001)),
    "a long text": ("bad/run.json", record("bad", submitter="x" * 300)),
    "another run's record": ("bad/run.json", record("good-1")),
    "no UTF-8": ("bad/run.json", record("bad")[:-1] + b', "x": "\xff"}'),
    "a lone surrogate": ("bad/run.json", record("bad", script="\ud800")),
    "a byte order mark": ("bad/run.json", b"\xef\xbb\xbf" + record("bad")),
    "no number": ("bad/run.json", record("bad", x=float("nan"))),
    "a huge number": ("bad/run.json", record("bad", schema=10**4000)),
    "gzip": ("bad/run.json", b"\x1f\x8b\x08\x00" + bytes(50)),
    "no dataset": (
        "bad/run.json",
        record("bad", dataset={"name": "../x", "version": "1.0.0", "manifest_sha256": "0" * 64}),
    ),
    "a long name": (f"{'x' * 300}/run.json", record("x" * 300)),
    "NUL in a name": ("a\0b/run.json", record("a\0b")),
    "an escape in a name": ("\x1b]0;evil\x07/run.json", record("\x1b]0;evil\x07")),
    "dots as name": ("../run.json", record("..")),
    "a git folder": (".git/run.json", record(".git")),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_a_bad_record_of_a_run_is_one_warning(
    tpuctl: Command, bucket: Bucket, good: list[str], case: str
) -> None:
    name, content = BAD_RECORDS[case]
    put(bucket, f"runs/{name}", content)
    listed = tpuctl("runs")
    assert (listed.code, rows(listed)) == (0, good)
    warnings = [line for line in listed.err.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == 1, listed.err
    assert warnings[0].startswith(f"Warning: runs/{ascii(name)[1:9]}")
    assert listed.err.replace("\n", "").isprintable()
    assert [run["run"] for run in tpuctl("runs", "--json").json["runs"]] == good
    shown = tpuctl("logs")
    assert (shown.code, shown.out) == (0, "[0] I am good-2\n")
    pulled = tpuctl("pull")
    assert pulled.code == 0, pulled.err
    assert Path("good-2/run.json").is_file()


def test_a_command_that_needs_the_record_names_it(tpuctl: Command, bucket: Bucket) -> None:
    put(bucket, "runs/bad/run.json", b"{}")
    for words in (("resubmit", "bad"), ("export", "bad"), ("diff", "bad", "bad")):
        refused = tpuctl(*words)
        assert refused.code not in (0, 1), words
        assert "runs/bad/run.json is not a Run record of schema 1" in refused.err, (words, refused.err)


UNKNOWN = {
    # object of the run: its content
    "an empty verdict": ("verdict.json", b"{}"),
    "a verdict of no byte": ("verdict.json", b""),
    "a verdict of nonsense": ("verdict.json", b"[[["),
    "another run's verdict": ("verdict.json", verdict("good-1")),
    "an outcome that is a sentence": ("verdict.json", verdict("odd", outcome="all is\nwell")),
    "an attempt that is empty": ("attempts/2/attempt.json", b"{}"),
    "twenty thousand workers": ("attempts/2/attempt.json", attempt(attempt=2, workers=list(range(20_000)))),
    "a worker twice": ("attempts/2/attempt.json", attempt(attempt=2, workers=[0] * 4000)),
    "no worker": ("attempts/2/attempt.json", attempt(attempt=2, workers=[])),
    "the first attempt again": ("attempts/2/attempt.json", attempt()),
    "a node elsewhere": (
        "attempts/2/attempt.json",
        attempt(attempt=2, tpu=msgspec.to_builtins(ATTEMPT.tpu) | {"zone": "../../x"}),
    ),
    "a status that is empty": ("attempts/1/workers/0/status.json", b"{}"),
    "a status of no byte": ("attempts/1/workers/0/status.json", b""),
    "another worker's status": (
        "attempts/1/workers/0/status.json",
        encode_status(STATUS).replace(b'"worker": 0', b'"worker": 3'),
    ),
    "a status without a time": (
        "attempts/1/workers/0/status.json",
        encode_status(STATUS).replace(CREATED.encode(), b"yesterday"),
    ),
    "a status with a huge exit code": (
        "attempts/1/workers/0/status.json",
        encode_status(STATUS).replace(b"null", b"1" * 40),
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_state_that_cannot_be_read_is_unknown_and_nothing_is_guessed(
    tpuctl: Command, bucket: Bucket, good: list[str], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StoredRun(bucket, "odd")
    put(bucket, run.paths.record, record("odd"))
    write_chunk(run.create_attempt(ATTEMPT), 0, 1, "I am odd\n")
    name, content = UNKNOWN[case]
    put(bucket, f"runs/odd/{name}", content)
    now = Bucket.now
    monkeypatch.setattr(Bucket, "now", lambda own: now(own) + timedelta(hours=1))
    listed = tpuctl("runs", "--json")
    states = {run["run"]: run["state"] for run in listed.json["runs"]}
    assert listed.code == 0
    assert f"Warning: runs/odd/{name} is not a " in listed.err
    if "status" in name:  # the node decides about a worker that says nothing: it does not exist
        assert states == {"good-1": "succeeded", "good-2": "succeeded", "odd": "stopped"}
    else:
        assert states == {"good-1": "succeeded", "good-2": "succeeded", "odd": "unknown"}
        assert "verdict" in name or StoredRun(bucket, "odd").verdict() is None
    shown = tpuctl("logs", "odd")
    assert (shown.code, shown.out) == (0, "[0] I am odd\n"), shown.err
    assert ("How the run ended is unknown." in shown.err) == ("verdict" in name)
    assert tpuctl("logs", "good-1").out == "[0] I am good-1\n"


def test_names_beside_attempts_and_chunks_are_warnings(
    tpuctl: Command, bucket: Bucket, good: list[str]
) -> None:
    bucket.remove(bucket.objects("runs/good-2/verdict.json")[0])
    for folder in ("²", "-1", "0", "01", "99999999999999999999", "x\x1b[2J", "1\u202e"):
        put(bucket, f"runs/good-2/attempts/{folder}/attempt.json", attempt())
    put(bucket, "runs/good-2/attempts/7/workers/0/status.json", b"{}")
    for chunk in ("x.log", "000000.log", "²²²²²².log", "0000001.log", "000002.log/y", "999999.log"):
        put(bucket, f"runs/good-2/attempts/1/workers/0/log/{chunk}", b"far\n")
    shown = tpuctl("logs")
    assert (shown.code, shown.out) == (0, "[0] I am good-2\n[0] far\n"), shown.err
    for name in ("attempts/²/", "attempts/01/", "attempts/1/workers/0/log/x.log"):
        assert f"Warning: runs/good-2/{name} " in shown.err
    assert "attempts/7" not in shown.err, "a folder without a record is no attempt"
    assert tpuctl("runs").code == 0


def test_more_warnings_than_help_are_counted(tpuctl: Command, bucket: Bucket, good: list[str]) -> None:
    for number in range(MOST + 5):
        put(bucket, f"runs/bad-{number}/run.json", b"{}")
    listed = tpuctl("runs")
    assert (listed.code, rows(listed)) == (0, good)
    warnings = [line for line in listed.err.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == MOST + 1
    assert warnings[-1] == "Warning: 5 more like these."


def test_hostile_objects_cost_a_request_each_at_most(
    tpuctl: Command, bucket: Bucket, good: list[str], simulator: RunningSimulator
) -> None:
    count = 100
    for number in range(count):
        put(bucket, f"runs/bad-{number}/run.json", b"{}")
        put(bucket, f"runs/folder-{number}/x", b"")
        put(bucket, f"runs/good-1/attempts/{number + 10}/workers/0/status.json", b"{}")
    before = len(simulator.events.find(kind="request", service="storage"))
    assert tpuctl("runs").code == 0
    requests = len(simulator.events.find(kind="request", service="storage")) - before
    assert requests <= count + 3 * len(good)


def test_statuses_of_many_workers_are_read_where_they_are(
    bucket: Bucket, good: list[str], simulator: RunningSimulator
) -> None:
    run = StoredRun(bucket, "good-1")
    workers = tuple(range(4096))
    run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2, workers=workers))
    put(bucket, run.paths.status(2, 4095), encode_status(STATUS).replace(b'"worker": 0', b'"worker": 4095'))
    before = len(simulator.events.find(kind="request", service="storage"))
    statuses = run.attempt(2).statuses()
    assert len(simulator.events.find(kind="request", service="storage")) - before <= 4
    assert len(statuses) == len(workers)
