"""What one supervisor tells the bucket while its script runs and at its end, whatever the bucket answers.

Files that a script leaves in its folder for reports are kept with the run, however the script ends.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import SPEC, Host
from tpuctl import runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host import gcs, timing
from tpuctl.host.worker import reporting
from tpuctl.host.worker import reporting as module
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.host.worker.reporting import AnotherSupervisorError, Reporter, read_last
from tpuctl.host.worker.signals import Signals
from tpuctl.polling import Backoff, poll

PATHS = RunPaths("r1")
NAME = PATHS.status(1, 0)
LOGS = PATHS.ordered_logs(1)
BACKOFF = Backoff(0.001, 0.01)


class Clock:
    """A clock that only pauses move, in the place of the module `time`."""

    gmtime, strftime = staticmethod(time.gmtime), staticmethod(time.strftime)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def pause(self) -> None:
        self.now += 1

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for each in (module, timing):
        monkeypatch.setattr(each, "time", made)
    monkeypatch.setattr(timing, "pause", made.pause)
    return made


@pytest.fixture
def signals() -> Signals:
    return Signals()


@pytest.fixture
def reporter(worker_bucket: gcs.Bucket, tmp_path: Path, signals: Signals) -> Reporter:
    folder = tmp_path / "1"
    (folder / "reports").mkdir(parents=True)
    (folder / "log").touch()
    return Reporter(worker_bucket, SPEC, str(folder), signals)


def stored(bucket: Bucket) -> WorkerStatus:
    return runs.decode(bucket.read(NAME), WorkerStatus, NAME)


def log(bucket: Bucket) -> bytes:
    return b"".join(bucket.read(chunk.name) for chunk in bucket.objects(LOGS))


def failing(*errors: Exception) -> Callable[[], None]:
    """Return work that fails so, time after time, and then succeeds."""
    left = list(errors)

    def work() -> None:
        if left:
            raise left.pop(0)

    return work


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (gcs.GcsError("the bucket is gone"), "the bucket is gone"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (AnotherSupervisorError("supervisor 1 has written"), "supervisor 1 has written"),
        (KeyError("generation"), "KeyError: 'generation'"),
    ],
)
def test_work_that_fails_ends_nothing_and_is_named(
    reporter: Reporter, error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not reporter.attempt(failing(error))
    assert capsys.readouterr().err == f"[tpuctl] {said}\n"
    assert reporter.attempt(failing())
    assert capsys.readouterr().err == ""


def test_only_another_supervisor_stops_this_one(reporter: Reporter, signals: Signals) -> None:
    reporter.attempt(failing(gcs.GcsError("no answer")))
    assert signals.number == 0
    reporter.attempt(failing(AnotherSupervisorError("another")))
    assert signals.number == signal.SIGTERM


class TestRetrying:
    def test_it_ends_with_the_first_success(self, reporter: Reporter, clock: Clock) -> None:
        assert reporter.retry(failing(*[gcs.GcsError("no answer")] * 4), 10.0)
        assert clock.now == 4

    @pytest.mark.parametrize(("failures", "succeeds"), [(3, True), (4, False)])
    def test_the_last_try_is_at_the_deadline(
        self, reporter: Reporter, clock: Clock, failures: int, succeeds: bool
    ) -> None:
        assert reporter.retry(failing(*[gcs.GcsError("no answer")] * failures), 2.0) == succeeds
        assert clock.now == 3

    def test_a_host_that_is_stopped_tries_once(
        self, reporter: Reporter, signals: Signals, clock: Clock
    ) -> None:
        signals.number = signal.SIGTERM
        assert not reporter.retry(failing(gcs.GcsError("no answer")), 10.0)
        assert reporter.retry(failing(), 10.0)
        assert clock.now == 0


class TestRefusal:
    """What the bucket refuses is tried again, more and more seldom, and not for an hour."""

    @pytest.fixture
    def pauses(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """The pauses between tries, which the clock passes at once."""
        waited = list[float]()

        def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
            waited.append(seconds)
            clock.now += seconds
            return condition()

        monkeypatch.setattr(timing, "wait_until", wait_until)
        return waited

    def test_for_good_is_given_up_after_minutes(self, reporter: Reporter, pauses: list[float]) -> None:
        words = list[str]()
        refused = failing(*[gcs.RefusedError("POST x", 403, "No right.")] * 1000)
        assert not reporter.retry(refused, 3600.0, words.append)
        assert set(words) == {"403 No right."}
        assert (pauses[0], max(pauses)) == (timing.POLL_INTERVAL, timing.LONGEST_REFUSED_PAUSE)
        assert pauses == sorted(pauses)
        assert timing.REFUSED_TIMEOUT <= sum(pauses) <= timing.REFUSED_TIMEOUT + max(pauses)
        before = len(pauses)
        assert not reporter.retry(refused, 7200.0)
        assert len(pauses) == before, "what comes after it was refused for as long"

    def test_for_a_while_is_forgotten_with_the_next_success(
        self, reporter: Reporter, clock: Clock, pauses: list[float]
    ) -> None:
        refusal = gcs.RefusedError("POST x", 403, "No right.")
        for _ in range(2):
            assert reporter.retry(failing(*[refusal] * 20), 3600.0)
            clock.now += timing.REFUSED_TIMEOUT

    def test_an_outage_lasts_as_long_as_ever(
        self, reporter: Reporter, clock: Clock, pauses: list[float]
    ) -> None:
        refusal, outage = gcs.RefusedError("POST x", 403, "No right."), gcs.GcsError("no answer")
        assert reporter.retry(failing(refusal, *[outage] * 1000), 3600.0)
        assert len(pauses) == 1

    def test_of_a_last_word_is_kept_with_it_on_the_host(
        self, reporter: Reporter, bucket: Bucket, pauses: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise gcs.RefusedError("POST x", 403, "No right.")

        folder = str(Path(reporter.log).parent)
        ended = replace(reporter.status.last, exit_code=0)
        with monkeypatch.context() as patch:
            patch.setattr(gcs.Bucket, "put", refuse)
            with pytest.raises(gcs.GcsError):
                reporter.finish(ended, 3600.0)
        last = read_last(folder) or {}
        assert (last["state"], last["exit_code"], last["refusal"]) == ("finished", 0, "403 No right.")
        reporter.finish(ended, 3600.0)
        assert (stored(bucket).state, stored(bucket).refusal) == ("finished", "")


def test_heartbeats_and_the_log_are_written_until_the_end(
    reporter: Reporter, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "POLL_INTERVAL", 0.001)
    monkeypatch.setattr(timing, "HEARTBEAT", 0.0)
    Path(reporter.log).write_bytes(b"step 1\n")
    reporter.start()
    try:
        poll(
            lambda: (bucket.stat(NAME) and stored(bucket).log_chunks == 1) or None,
            awaiting="a heartbeat that counts the log", timeout=120, backoff=BACKOFF, hint="",
        )  # fmt: skip
    finally:
        status = reporter.finish_log(reporter.status.last, 0.0)
        reporter.finish(status, 0.0)
    assert (stored(bucket).state, stored(bucket).log_chunks) == ("finished", 1)
    assert not reporter._heartbeat.is_alive()
    assert not reporter._shipping.is_alive()


def test_a_heartbeat_says_for_how_long_the_running_script_has_printed_nothing(
    reporter: Reporter, bucket: Bucket
) -> None:
    log = Path(reporter.log)

    def quiet() -> int | None:
        reporter._beat()
        return stored(bucket).quiet

    os.utime(log, (7, 7))
    assert quiet() is None, "its packages are being installed"
    reporter.update(state="running")
    assert (quiet() or 0) > 600
    log.write_bytes(b"step 1\n")
    assert (quiet() or 0) < 600
    log.unlink()
    assert quiet() is None, "a heartbeat is written, whatever became of the log"


def test_the_end_has_the_rest_of_the_log_and_the_reports(reporter: Reporter, bucket: Bucket) -> None:
    Path(reporter.log).write_bytes(b"step 1\n")
    (Path(reporter.reports) / "findings.json").write_text("{}")
    status = replace(reporter.status.last, exit_code=3)
    assert reporter.finish_log(status, 0.0) == status
    reporter.finish(status, 0.0)
    assert log(bucket) == b"step 1\n"
    assert bucket.read(PATHS.worker(1, 0) + "reports/findings.json") == b"{}"
    last = stored(bucket)
    assert (last.state, last.exit_code, last.log_chunks) == ("finished", 3, 1)


@pytest.mark.parametrize(
    ("error", "told"), [("", "the end of the log could not be shipped"), ("no space left", "no space left")]
)
def test_a_log_without_its_end_is_an_error_unless_the_run_has_another(
    reporter: Reporter, wire: FaultyWire, signals: Signals, error: str, told: str
) -> None:
    signals.number = signal.SIGTERM
    Path(reporter.log).write_bytes(b"step 1\n")
    wire.plan = [503] * len(timing.REQUEST_PAUSES)
    status = replace(reporter.status.last, error=error)
    assert reporter.finish_log(status, 0.0) == replace(status, error=told)


def test_a_last_status_that_cannot_be_written_is_kept_on_the_host(
    reporter: Reporter, wire: FaultyWire, signals: Signals, tmp_path: Path
) -> None:
    signals.number = signal.SIGTERM
    wire.plan = [503] * len(timing.REQUEST_PAUSES)
    with pytest.raises(gcs.GcsError, match=r"^the last status could not be written$"):
        reporter.finish(replace(reporter.status.last, exit_code=7), 0.0)
    kept = json.loads((tmp_path / "1/last_status.json").read_bytes())
    assert (kept["state"], kept["exit_code"]) == ("finished", 7)
    assert [path.name for path in (tmp_path / "1").iterdir() if path.suffix == ".part"] == []


def test_another_supervisor_goes_on_behind_what_is_told(
    reporter: Reporter, worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, signals: Signals
) -> None:
    Path(reporter.log).write_bytes(b"step 1\n")
    reporter.finish_log(reporter.status.last, 0.0)
    assert reporter.update(state="running", pid=7, log_chunks=1)
    for worker in (1, 2):  # whose log this one does not count
        chunk = LOGS + f"19700101T000000-{worker:04}-000009.log"
        bucket.create(chunk, b"of another worker\n", "text/plain")
    bucket.create(LOGS + "notes.txt", b"of somebody\n", "text/plain")
    Path(reporter.log).write_bytes(b"step 1\nstep 2\n")
    following = Reporter(worker_bucket, SPEC, str(tmp_path / "1"), signals)
    following.resume()
    assert (following.status.last.pid, following.status.last.supervisor) == (
        7,
        reporter.status.last.supervisor,
    )
    following.finish(following.finish_log(following.status.last, 0.0), 0.0)
    own = [bucket.read(item.name) for item in bucket.objects(LOGS) if "-0000-" in item.name]
    assert own == [b"step 1\n", b"step 2\n"]
    assert (stored(bucket).pid, stored(bucket).log_chunks) == (7, 2)


def test_a_host_without_a_status_begins_a_new_one(reporter: Reporter) -> None:
    supervisor = reporter.status.last.supervisor
    reporter.resume()
    assert reporter.status.last.supervisor == supervisor
    assert reporter.status.last.state == "preparing"


FOLDER = RunPaths("r1").worker(1, 0) + "reports/"
SCRIPT = (
    "import os\nfolder = os.environ['TPUCTL_REPORT_DIR']\n"
    "open(os.path.join(folder, 'findings.json'), 'w').write('{}')\n"
)


def names(bucket: Bucket) -> list[str]:
    return [report.name.removeprefix(FOLDER) for report in bucket.objects(FOLDER)]


@pytest.mark.parametrize(
    "end", ["", "raise ValueError\n", "import signal; os.kill(os.getpid(), signal.SIGKILL)\n"]
)
def test_a_report_is_in_the_bucket_when_the_run_has_ended(host: Host, end: str) -> None:
    host.start(SCRIPT + end)
    host.finished()
    assert names(host.bucket) == ["findings.json"]


def test_pull_fetches_it(host: Host, tmp_path: Path) -> None:
    host.start(SCRIPT)
    host.finished()
    pull(StoredRun(host.bucket, "r1"), tmp_path / "home", lambda line: None)
    assert (tmp_path / "home/attempts/1/workers/0/reports/findings.json").read_text() == "{}"


def test_a_script_without_reports_leaves_none(host: Host) -> None:
    host.start("print('done')")
    assert host.finished().error == ""
    assert names(host.bucket) == []


def test_only_finished_plain_files_below_the_limit_are_shipped(
    worker_bucket: gcs.Bucket,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reporting, "LARGEST_FILE", 5)
    for name in ("b.txt", "a.json", ".hidden", "draft.json.1.part"):
        (tmp_path / name).write_text("text")
    (tmp_path / "c.txt").write_text("limit")
    (tmp_path / "large").write_text("longer")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    reporting.ship(worker_bucket, FOLDER, str(tmp_path))
    assert names(bucket) == ["a.json", "b.txt", "c.txt"]
    assert bucket.read(FOLDER + "a.json") == b"text"
    assert capsys.readouterr().err == "[tpuctl] the report large has 6 bytes: skipped\n"


def test_a_report_of_another_program_is_left_and_the_rest_is_shipped(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.create(FOLDER + "a.txt", b"theirs")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("ours")
    reporting.ship(worker_bucket, FOLDER, str(tmp_path))
    assert (bucket.read(FOLDER + "a.txt"), bucket.read(FOLDER + "b.txt")) == (b"theirs", b"ours")
    assert capsys.readouterr().err == "[tpuctl] another program has written the report a.txt\n"


def test_a_report_has_32_mib_at_most() -> None:
    assert reporting.LARGEST_FILE == 32 << 20


@pytest.mark.daily
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.json", "application/json"),
        ("page.html", "text/html"),
        ("notes", "application/octet-stream"),
        ("a.unknown-suffix", "application/octet-stream"),
    ],
)
def test_a_report_has_the_content_type_of_its_name(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / name).write_text("text")
    reporting.ship(worker_bucket, FOLDER, str(tmp_path))
    (report,) = bucket.objects(FOLDER)
    assert report.content_type == kind


def test_reports_that_cannot_be_read_do_not_keep_the_run_from_its_end(host: Host) -> None:
    host.start(SCRIPT + "import shutil\nshutil.rmtree(folder)\n")
    status = host.finished()
    assert (status.exit_code, status.error) == (0, "")
    assert names(host.bucket) == []
    assert "No such file or directory" in host.supervisor_log()
