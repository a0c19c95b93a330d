"""A run that somebody asks to stop: on its host, and through the bucket alone."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import SPEC, Host
from tests.host.worker.test_program import FAST
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker.control import Stops
from tpuctl.host.worker.records import STOP_FILE, StopRequest, encode, read_stop
from tpuctl.polling import Backoff, poll

REQUEST = StopRequest("r1", "ada@example.com", "2026-01-01T12:00:00Z", 20)
STOP = RunPaths("r1").stop
SAVING = """
import signal, sys, time
def save(number, frame):
    print('saved', flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
print('step 1', flush=True)
time.sleep(600)
"""
DEAF = (
    "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('step 1', flush=True)\ntime.sleep(600)\n"
)

FAILING = """
import pathlib, sys, time
print('step 1', flush=True)
while not pathlib.Path('../fail').exists():
    time.sleep(0.05)
sys.exit(7)
"""

HEARD_AT_ITS_END = """
import pathlib, time
from tpuctl.host.worker.job.script import Script
poll_script = Script.poll
def poll_until_heard(script):
    code = poll_script(script)
    if code is not None:
        pathlib.Path('ended').touch()
        while 'asks to stop' not in pathlib.Path('supervisor.log').read_text():
            time.sleep(0.02)
    return code
Script.poll = poll_until_heard
"""
"""The supervisor sees the script's end, and looks at its code once it has heard of a request."""


class TestScript:
    @pytest.mark.parametrize("place", ["host", "bucket"])
    def test_it_gets_sigterm_and_saves_and_its_status_says_who_asked(
        self, host: Host, place: str, wait_for_end: Callable[[int], None]
    ) -> None:
        with host.supervise(SAVING, FAST) as process:
            host.wait_for_output(b"step 1")
            if place == "host":
                host.ask_to_stop(REQUEST)
            else:
                host.bucket.create(STOP, encode(REQUEST))
            assert process.wait(60) == 0
            status = host.status()
            assert (status.exit_code, status.stopped_by, status.stopped) == (3, REQUEST.by, "")
            assert host.log() == b"step 1\nsaved\n"
            wait_for_end(status.pid)

    def test_it_is_killed_after_the_grace(self, host: Host, wait_for_end: Callable[[int], None]) -> None:
        with host.supervise(DEAF, FAST) as process:
            host.wait_for_output(b"step 1")
            host.ask_to_stop(replace(REQUEST, grace=0))
            assert process.wait(60) == 0
            status = host.status()
            assert (status.signal, status.stopped_by) == ("SIGKILL", REQUEST.by)
            wait_for_end(status.pid)

    def test_it_does_not_start_where_the_request_comes_while_packages_are_installed(self, host: Host) -> None:
        never = "packages.ensure = lambda *rest: __import__('time').sleep(600)"
        imports = "from tpuctl.host.worker.preparation import packages"
        with host.supervise("print('never')", f"{imports}\n{never}", dependencies=["numpy"]) as process:
            host.ask_to_stop(REQUEST)
            assert process.wait(60) == 0
            status = host.status()
            assert (status.stopped_by, status.pid, status.exit_code) == (REQUEST.by, 0, None)
            assert status.error == "the run was stopped before the script started"
            assert host.log() == b""

    def test_a_script_that_has_ended_by_itself_was_stopped_by_nobody(self, host: Host) -> None:
        host.bucket.create(STOP, encode(REQUEST))
        with host.supervise("print('done')", "timing.HEARTBEAT = 600") as process:
            assert process.wait(60) == 0
            assert (host.status().exit_code, host.status().stopped_by) == (0, "")

    def test_a_request_that_comes_with_its_end_has_not_stopped_it(self, host: Host) -> None:
        with host.supervise("print('done')", f"{FAST}\n{HEARD_AT_ITS_END}") as process:
            poll(
                lambda: (host.folder / "ended").exists() or None, awaiting="the script's end", timeout=60,
                backoff=Backoff(0.02, 0.1),
            )  # fmt: skip
            host.ask_to_stop(REQUEST)
            assert process.wait(60) == 0
            assert (host.status().exit_code, host.status().stopped_by) == (0, "")

    def test_a_script_that_fails_because_others_were_stopped_was_stopped_too(self, host: Host) -> None:
        with host.supervise(FAILING, "timing.HEARTBEAT = 600") as process:
            host.wait_for_output(b"step 1")
            host.bucket.create(STOP, encode(REQUEST))
            (host.folder / "fail").touch()
            assert process.wait(60) == 0
            assert (host.status().exit_code, host.status().stopped_by) == (7, REQUEST.by)

    def test_a_host_that_stops_meanwhile_leaves_who_asked(self, host: Host) -> None:
        with host.supervise(DEAF, f"{FAST}; timing.STOP_GRACE = 0") as process:
            host.wait_for_output(b"step 1")
            host.ask_to_stop(replace(REQUEST, grace=3600))
            poll(
                lambda: "asks to stop" in host.supervisor_log() or None, awaiting="the request", timeout=60,
                backoff=Backoff(0.02, 0.1),
            )  # fmt: skip
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert (host.status().stopped_by, host.status().stopped) == (REQUEST.by, "SIGTERM")


HOSTILE = (
    b"", b"null", b"[]", b"{}", b"\xff", b"[" * 4000, b"x" * 5000,
    *(
        json.dumps({**json.loads(encode(REQUEST)), **changes}).encode()
        for changes in (
            {"schema": 2}, {"run": "r2"}, {"by": ""}, {"by": "a" * 257}, {"by": 5}, {"grace": -1},
            {"grace": 3601}, {"grace": True}, {"grace": 1.5}, {"grace": None}, {"requested": None},
        )
    ),
)  # fmt: skip
"""Contents that are no request to stop the run."""


class TestRequest:
    def test_it_is_read_as_it_was_written(self) -> None:
        assert read_stop(encode(REQUEST), "r1") == REQUEST

    @pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
    def test_anything_else_is_refused(self, data: bytes) -> None:
        with pytest.raises(ValueError, match=r"."):
            read_stop(data, "r1")

    def test_in_the_bucket_anything_else_is_said_once_and_stops_nothing(
        self,
        worker_bucket: gcs.Bucket,
        bucket: Bucket,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(timing, "HEARTBEAT", 0.0)
        stops = Stops(worker_bucket, SPEC, str(tmp_path))
        assert not stops.look()
        for data in HOSTILE:
            bucket.upload(STOP, [data], "application/json")
            assert not stops.look()
            assert not stops.look()
        said = capsys.readouterr().err
        assert said.count("is no request to stop this run") == len(HOSTILE)
        bucket.upload(STOP, [encode(REQUEST)], "application/json")
        assert stops.look()
        assert stops.request == REQUEST

    def test_the_bucket_is_asked_once_a_heartbeat(
        self, worker_bucket: gcs.Bucket, wire: FaultyWire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stops = Stops(worker_bucket, SPEC, str(tmp_path))
        assert not any(stops.look() for _ in range(100))
        assert wire.requests == []
        monkeypatch.setattr(time, "monotonic", lambda read=time.monotonic: read() + timing.HEARTBEAT)
        assert not any(stops.look() for _ in range(100))
        assert len(wire.requests) == 1

    def test_on_the_host_anything_else_is_deleted_and_stops_nothing(
        self, worker_bucket: gcs.Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / STOP_FILE
        path.write_bytes(b"{}")
        assert not Stops(worker_bucket, SPEC, str(tmp_path)).look()
        assert not path.exists()
        said = capsys.readouterr().err
        assert said.startswith(f"[tpuctl] {path} is no request to stop this run: ")
        assert said.count("\n") == 1

    def test_one_on_the_host_is_heard_though_the_bucket_is_gone_and_is_never_taken_back(
        self, worker_bucket: gcs.Bucket, tmp_path: Path, wire: FaultyWire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timing, "HEARTBEAT", 0.0)
        stops = Stops(worker_bucket, SPEC, str(tmp_path))
        path = tmp_path / STOP_FILE
        path.write_bytes(encode(REQUEST))
        assert stops.look()
        path.unlink()
        assert stops.look()
        assert stops.request == REQUEST
        stops.look_in_bucket()
        assert stops.request == REQUEST
        assert wire.requests == []
