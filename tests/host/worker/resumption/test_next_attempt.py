"""Whether a host prepares the next attempt after a reboot, by what its disk and the bucket say.

What hosts read of the bucket before they resume a run: anybody may have written it.
"""

from __future__ import annotations

import fcntl
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.bucket_objects.test_fuzz import HOSTILE
from tests.host.worker.counting_bucket import CountingBucket
from tests.host.worker.host import SPEC
from tpuctl.host import gcs, timing
from tpuctl.host.worker import resumption as kept
from tpuctl.host.worker import resumption as resume
from tpuctl.host.worker.records import Resumption, Spec, WorkerStatus, encode
from tpuctl.host.worker.resumption import LEASE_SECONDS, Successor, record_in

ATTEMPT = "runs/r1/attempts/1/"
BEFORE, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:02:00Z"
LAST = WorkerStatus(
    0, 1, "77", "finished", LATER, started="2026-01-01T10:00:00Z", stopped="SIGTERM", cause="maintenance"
)


class ClosingBucket(CountingBucket):
    """A bucket that says whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Disk:
    """The folder of attempt 1 on its host, and what the next one is started with."""

    def __init__(self, folder: Path, bucket: ClosingBucket) -> None:
        self.folder = folder
        self.bucket = bucket
        self.started: list[str] = []
        self.spoken: list[tuple[Spec, str]] = []
        folder.mkdir(parents=True)
        (folder / "worker.zip").write_bytes(b"program")
        record = {"attempt": 1, "created": BEFORE, "tpu": {"name": "n1"}}
        bucket.put(f"{ATTEMPT}attempt.json", json.dumps(record).encode())

    def write(self, status: WorkerStatus | None) -> None:
        """Have this as the last status on the disk."""
        if status:
            (self.folder / "last_status.json").write_bytes(encode(status))

    def resume(self, status: WorkerStatus | None = LAST, **resumption: int) -> int:
        self.write(status)
        spec = replace(SPEC, resumption=Resumption(2, "nodes/n/runs/", **resumption))
        kept.keep(spec, str(self.folder))

        def start(path: str) -> int:
            self.started.append(path)
            return 5

        return resume.resume(str(self.folder), lambda spec, path: self.spoken.append((spec, path)), start)

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A host whose supervisor has ended."""
    bucket = ClosingBucket()
    monkeypatch.setattr(resume.gcs, "Bucket", lambda name: bucket)
    return Disk(tmp_path / "r1/1", bucket)


Said = Callable[[], list[str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """The lines of the program's own log."""
    return lambda: [line.removeprefix("[tpuctl] ") for line in capsys.readouterr().err.splitlines()]


def test_the_next_attempt_has_program_and_spec_in_a_folder_of_its_own(disk: Disk, said: Said) -> None:
    assert disk.resume() == 5
    following = disk.folder.parent / "2"
    assert disk.started == [str(following / "spec.json")]
    assert (following / "worker.zip").read_bytes() == b"program"
    spec = json.loads((following / "spec.json").read_bytes())
    assert (spec["attempt"], spec["folder"]) == (2, "runs/r1/attempts/2/workers/0/")
    assert spec["resumption"] == {"restarts": 1, "line": "nodes/n/runs/", "others": [], "lost_at_once": 0}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (following, following / "spec.json")] == [
        0o700,
        0o600,
    ]
    assert not disk.names & {"resume", "resume.json"}, "another has followed"
    assert said() == ["resumed as attempt 2"]
    ((own, place),) = disk.spoken
    assert (own.run, place, disk.bucket.is_closed) == ("r1", str(disk.folder), True)


def test_a_run_that_does_not_resume_starts_nothing(disk: Disk) -> None:
    assert resume.resume(str(disk.folder), lambda spec, path: None, disk.started.append) == 0  # type: ignore[arg-type, func-returns-value]
    assert (disk.started, disk.spoken, disk.names) == ([], [], {"worker.zip"})


def test_of_two_commands_at_once_one_resumes(disk: Disk) -> None:
    with (disk.folder / "resume.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert disk.resume() == 0
    assert (disk.started, disk.spoken) == ([], [])
    assert {"resume", "resume.json"} <= disk.names


def test_where_a_supervisor_lives_nothing_was_restarted(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "START_TIMEOUT", 0.0)
    with (disk.folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert disk.resume() == 0
    assert (disk.started, disk.spoken) == ([], [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stopped_by": "ada"}, "ada asked to stop it"),
        ({"stopped": "", "exit_code": 3}, "it had ended before: exit code 3, no error"),
        ({"stopped": "", "error": "no code"}, "it had ended before: exit code None, no code"),
    ],
)
def test_an_attempt_that_no_reboot_ended_is_not_resumed(
    disk: Disk, said: Said, changes: dict[str, object], reason: str
) -> None:
    assert disk.resume(replace(LAST, **changes)) == 0  # type: ignore[arg-type]
    assert (disk.started, said(), disk.bucket.is_closed) == ([], [f"not resumed: {reason}"], True)
    assert not disk.names & {"resume", "resume.json"}


def test_one_without_a_last_word_is_not_resumed(disk: Disk) -> None:
    assert disk.resume(None) == 0
    assert (disk.started, disk.bucket.is_closed) == ([], True)


class TestLostAtOnce:
    """A host that loses each attempt within two minutes is broken: a watcher replaces it."""

    @pytest.mark.parametrize(
        ("started", "cause", "before", "after"),
        [
            (BEFORE, "reboot", 0, 1), ("2026-01-01T11:59:59Z", "reboot", 0, 0), (BEFORE, "maintenance", 1, 0),
            ("", "reboot", 1, 0), ("2026-01-01T11:59:59Z", "reboot", 1, 0),
        ],
    )  # fmt: skip
    def test_it_is_counted_from_attempt_to_attempt(
        self, disk: Disk, started: str, cause: str, before: int, after: int
    ) -> None:
        assert disk.resume(replace(LAST, started=started, cause=cause), lost_at_once=before) == 5
        spec = json.loads(Path(disk.started[0]).read_bytes())
        assert spec["resumption"]["lost_at_once"] == after

    def test_the_second_one_is_the_last(self, disk: Disk, said: Said) -> None:
        assert disk.resume(replace(LAST, started=BEFORE, cause="reboot"), lost_at_once=1) == 0
        reason = "2 attempts in a row were lost at once; 'tpuctl watch' replaces the TPU"
        assert (disk.started, said()) == ([], [f"not resumed: {reason}"])


class TestAfterEnd:
    @pytest.mark.parametrize(
        ("changes", "is_kept"),
        [
            ({}, True),  # its command runs at the next boot
            ({"stopped_by": "ada"}, False),
            ({"stopped": "", "exit_code": 0}, False),
            ({"stopped": "", "peer": 1, "stopped_by": "ada"}, False),
        ],
    )
    def test_an_attempt_that_no_reboot_has_ended_is_forgotten(
        self, disk: Disk, changes: dict[str, object], is_kept: bool
    ) -> None:
        disk.write(replace(LAST, **changes))  # type: ignore[arg-type]
        kept.keep(replace(SPEC, resumption=Resumption(2, "l/")), str(disk.folder))
        resume.after_end(str(disk.folder))
        assert ("resume" in disk.names) is is_kept

    def test_where_another_hosts_end_ended_it_the_command_waits_for_that_one(
        self, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[list[str]] = []
        monkeypatch.setattr(resume.subprocess, "Popen", lambda command, **options: calls.append(command))
        disk.write(replace(LAST, stopped="", peer=1))
        resume.after_end(str(disk.folder))
        assert calls == [], "none is kept"
        kept.keep(replace(SPEC, resumption=Resumption(2, "l/")), str(disk.folder))
        resume.after_end(str(disk.folder))
        assert calls == [["sh", str(disk.folder / "resume")]]
        assert "resume.json" in disk.names

    def test_without_a_word_nothing_is_forgotten(self, disk: Disk) -> None:
        kept.keep(replace(SPEC, resumption=Resumption(2, "l/")), str(disk.folder))
        resume.after_end(str(disk.folder))
        assert {"resume", "resume.json"} <= disk.names


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_is_no_record_counts_as_none(number: int) -> None:
    assert record_in(HOSTILE[number]) in ({}, record_in(b'{"schema": 1}'), {"schema": 1})


def successor(restarts: int) -> Successor:
    spec = replace(SPEC, resumption=Resumption(restarts, "nodes/n/runs/"), line_timeout=60.0)
    return Successor(gcs.Bucket("b"), spec)


def test_each_attempt_has_a_secret_of_its_own_that_all_its_hosts_know() -> None:
    specs = [successor(2).spec(lost_at_once=0), successor(2).spec(lost_at_once=0)]
    assert specs[0] == specs[1]
    assert specs[0].key not in (SPEC.key, "")
    assert (specs[0].attempt, specs[0].folder) == (2, "runs/r1/attempts/2/workers/0/")
    assert (specs[0].line, specs[0].line_timeout) == ("nodes/n/runs/", 0.0)


@pytest.mark.parametrize(
    ("record", "leased"),
    [
        (None, False),
        ({"seconds": 3600}, True),
        ({"seconds": -1}, False),  # nothing is as young as that
        ({"seconds": "a while"}, True),  # then it is as usual
        ({}, True),
        ({"seconds": 3600, "is_over": True}, False),
    ],
)
def test_a_lease_counts_until_it_is_old_or_over(
    worker_bucket: gcs.Bucket, record: dict[str, object] | None, leased: bool
) -> None:
    spec = replace(SPEC, resumption=Resumption(2, "nodes/n/runs/"))
    name = "runs/r1/attempts/2/lease.json"
    worker_bucket.put(name + ".bak", b"{}")
    if record is not None:
        worker_bucket.put(name, msgspec.json.encode(record))
    assert Successor(worker_bucket, spec).is_leased() is leased


def test_a_lease_that_claims_an_hour_is_late_like_any_other(
    worker_bucket: gcs.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job may create one: it would keep the hosts of another run from resuming it."""
    spec = replace(SPEC, resumption=Resumption(2, "nodes/n/runs/"))
    worker_bucket.put("runs/r1/attempts/2/lease.json", b'{"seconds": 3600}')
    listed = worker_bucket.list
    for age, leased in ((LEASE_SECONDS, True), (LEASE_SECONDS + 1, False)):
        aged = [item._replace(age=age) for item in listed("runs/r1/")]
        monkeypatch.setattr(worker_bucket, "list", lambda _, aged=aged: aged)
        assert Successor(worker_bucket, spec).is_leased() is leased


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, None), (-1, -1)])
def test_restarts_are_counted_to_their_end(before: int, after: int | None) -> None:
    following = successor(before).spec(lost_at_once=1).resumption
    assert (following.restarts if following else None) == after
    if following:
        assert following.lost_at_once == 1
