"""The records that laptop and host share, as they are in the bucket and in the attempt's folder."""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import replace

import pytest

from tpuctl.host.worker import records
from tpuctl.host.worker.records import Resumption, Spec, StopRequest, WorkerStatus

REQUIRED = {
    "bucket": "b", "run": "r1", "attempt": 1, "worker": 0, "workers": 1, "tpu_uid": "7", "framework": "jax",
    "script": "job.py", "arguments": ["--rate", "1"], "dependencies": [], "bundle": "bundles/0",
    "bundle_sha256": "0", "bundle_size": 1, "unpacked_size": 2, "folder": "runs/r1/attempts/1/workers/0/",
    "key": "k", "environment": {"A": "b"},
}  # fmt: skip
STOP = {"run": "r1", "by": "ada@laptop", "requested": "2026-01-01T12:00:00Z", "grace": 30, "schema": 1}


def read_spec(content: object) -> Spec:
    return records.read_spec(io.StringIO(json.dumps(content)))


class TestNames:
    def test_pieces_of_a_log_sort_by_time_then_by_worker_then_by_number(self) -> None:
        names = [
            records.ordered_log_file(time, worker, chunk)
            for time in ("20260131T235959", "20260201T000000")
            for worker in (2, 10)
            for chunk in (9, 10)
        ]
        assert names == sorted(names)
        assert names[0] == "log/20260131T235959-0002-000009.log"
        assert [records.log_file(1), records.log_file(999_999)] == ["log/000001.log", "log/999999.log"]

    def test_the_folder_of_an_attempt_is_that_above_its_workers(self) -> None:
        """Also where the run has such a name."""
        assert records.attempt_folder("runs/workers/attempts/3/workers/12/") == "runs/workers/attempts/3/"


def test_states_and_causes_are_the_words_of_records_that_exist() -> None:
    assert (records.QUEUED, records.PREPARING, records.READY) == ("queued", "preparing", "ready")
    assert (records.RUNNING, records.FINISHED) == ("running", "finished")
    assert (records.PREEMPTION, records.MAINTENANCE, records.REBOOT) == ("preempted", "maintenance", "reboot")
    assert (records.OUT_OF_MEMORY, records.DISK_FULL) == ("out of memory", "disk full")
    assert (records.IMAGE, records.OWN) == ("image", "own")


class TestSpec:
    def test_what_an_earlier_version_left_out_has_the_values_of_a_run_on_one_host(self) -> None:
        written = json.loads(records.encode(read_spec({**REQUIRED, "schema": 1, "of a later version": 1})))
        assert written == {
            **REQUIRED, "token": "", "requires_python": "", "requirements": "", "packages": "image",
            "participants": [], "stored": [],
            "line": "", "line_timeout": 0.0, "wheelhouse": "", "setup": "", "setup_timeout": 1800.0,
            "resumption": None, "choice": "", "chips": 0, "pins": [], "python": "", "python_archives": {},
            "constraints": [], "sources": [], "kind": "script", "directory": "", "schema": 1,
        }  # fmt: skip

    def test_a_resumption_is_read_as_it_was_written(self) -> None:
        resumption = Resumption(restarts=-1, line="nodes/n/runs/")
        spec = replace(read_spec({**REQUIRED, "schema": 1}), resumption=resumption)
        content = json.loads(records.encode(spec))
        assert content["resumption"] == {
            "restarts": -1,
            "line": "nodes/n/runs/",
            "others": [],
            "lost_at_once": 0,
        }
        assert read_spec(content).resumption == resumption

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ([], "not of schema 1"),
            ({}, "not of schema 1"),
            (REQUIRED, "not of schema 1"),
            ({**REQUIRED, "schema": 2}, "not of schema 1"),
            ({**REQUIRED, "schema": 1, "resumption": ["restarts"]}, "not complete: 'list' object"),
            ({"schema": 1}, "not complete: .* missing 17 required .* 'bucket', 'run', "),
            (
                {**REQUIRED, "schema": 1, "resumption": {"restarts": 1}},
                "not complete: .* missing 1 required .* 'line'",
            ),
        ],
    )
    def test_what_is_no_spec_is_named(self, content: object, words: str) -> None:
        with pytest.raises(ValueError, match=f"^spec.json is {words}"):
            read_spec(content)

    def test_a_spec_that_is_nested_without_end_is_named(self) -> None:
        with pytest.raises(ValueError, match="nested too deep"):
            records.read_spec(io.StringIO("[" * 200_000))


class TestStatus:
    STATUS = WorkerStatus(3, 2, "7", "running", "2026-01-01T12:00:00Z")

    def test_a_first_status_says_nothing_that_has_not_happened(self) -> None:
        assert json.loads(records.encode(self.STATUS)) == {
            "worker": 3, "attempt": 2, "tpu_uid": "7", "state": "running",
            "heartbeat": "2026-01-01T12:00:00Z", "started": "", "finished": "", "pid": 0,
            "has_unnoted_script": False, "has_no_chip": False, "exit_code": None,
            "signal": "", "error": "", "stopped": "", "stopped_by": "", "ahead": 0, "cause": "", "tail": "",
            "peer": None, "log_chunks": 0, "quiet": None, "supervisor": "", "seal": "", "token": "",
            "refusal": "",
            "schema": 1,
        }  # fmt: skip

    def test_a_record_is_json_that_people_can_read(self) -> None:
        assert records.encode(StopRequest("r1", "ada", "2026-01-01T12:00:00Z")) == (
            b'{\n  "run": "r1",\n  "by": "ada",\n  "requested": "2026-01-01T12:00:00Z",\n'
            b'  "grace": 30,\n  "schema": 1\n}\n'
        )

    def test_a_long_error_loses_its_end(self) -> None:
        content = json.loads(records.encode(replace(self.STATUS, error="x" * 3999 + "yz")))
        assert content["error"] == "x" * 3999 + "y"

    @pytest.mark.parametrize(
        ("changes", "has_run", "is_finished"),
        [
            ({}, False, False),
            ({"pid": 7}, True, False),
            ({"has_unnoted_script": True}, True, False),
            ({"pid": 7, "state": "finished"}, True, True),
            ({"state": "finished"}, False, True),
        ],
    )
    def test_a_script_has_run_once_anybody_noted_it(
        self, changes: dict[str, object], has_run: bool, is_finished: bool
    ) -> None:
        status = replace(self.STATUS, **changes)  # type: ignore[arg-type]
        assert (status.has_run, status.is_finished) == (has_run, is_finished)

    def test_the_content_type_changes_with_what_is_said_but_not_with_each_heartbeat(self) -> None:
        said = records.encode(replace(self.STATUS, heartbeat=""))
        kind = records.status_type(self.STATUS)
        assert kind == f"application/json; word={zlib.crc32(said):08x}; chunks=0"
        later = replace(self.STATUS, heartbeat="2026-01-01T12:00:10Z", log_chunks=12, quiet=7)
        assert records.status_type(later) == kind.replace("chunks=0", "chunks=12")
        assert records.status_type(replace(self.STATUS, pid=1)) != kind

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("application/json; word=0123abcd; chunks=7", ("0123abcd", 7)),
            ("application/json; word=0123abcd; chunks=999999999", ("0123abcd", 999_999_999)),
            ("application/json; word=0123abcd; chunks=9999999999", None),
            ("application/json; word=0123abc; chunks=7", None),
            ("application/json; word=0123ABCD; chunks=7", None),
            ("application/json; word=0123abcd; chunks=7\n", None),
            ("application/json; word=0123abcd", None),
            ("application/json", None),
            ("", None),
        ],
    )
    def test_any_other_content_type_says_nothing(self, kind: str, expected: tuple[str, int] | None) -> None:
        assert records.read_status_type(kind) == expected


class TestStop:
    @pytest.mark.parametrize("grace", [0, 30, 3600])
    @pytest.mark.parametrize("by", ["a", "a" * 256])
    def test_a_request_is_read(self, grace: int, by: str) -> None:
        data = json.dumps({**STOP, "grace": grace, "by": by, "of a later version": 1}).encode()
        assert records.read_stop(data, "r1") == StopRequest("r1", by, "2026-01-01T12:00:00Z", grace)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"schema": 2}, "it is not of schema 1"),
            ({"schema": None}, "it is not of schema 1"),
            ({"grace": "30"}, "it is not complete"),
            ({"grace": True}, "it is not complete"),
            ({"grace": 30.0}, "it is not complete"),
            ({"by": None}, "it is not complete"),
            ({"requested": 7}, "it is not complete"),
            ({"run": ["r1"]}, "it is not complete"),
            ({"run": "r2"}, "it is of another run"),
            ({"by": ""}, "it does not say who asks"),
            ({"by": "a" * 257}, "it does not say who asks"),
            ({"grace": -1}, "its grace is not of 0 to 3600 seconds"),
            ({"grace": 3601}, "its grace is not of 0 to 3600 seconds"),
        ],
    )
    def test_what_is_no_request_for_this_run_is_named(self, changes: dict[str, object], words: str) -> None:
        with pytest.raises(ValueError, match=f"^{words}$"):
            records.read_stop(json.dumps({**STOP, **changes}).encode(), "r1")

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"[" * 200_000, "nested too deep"), (b"[]", "not of schema 1"), (b"null", "not of schema 1"),
            (b"{", "Expecting"), (b'{"schema": 1}', "not complete"),
        ],
    )  # fmt: skip
    def test_what_is_no_record_at_all_is_named(self, data: bytes, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            records.read_stop(data, "r1")
