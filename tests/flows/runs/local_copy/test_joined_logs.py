"""Which files of a copy are pieces of a log, and in which order they are joined."""

from __future__ import annotations

import pytest

from tpuctl.flows.runs.local_copy import Parts, joined_logs


def parts(*paths: str) -> list[Parts]:
    return [tuple(path.split("/")) for path in paths]


def test_the_pieces_of_a_worker_are_joined_by_their_numbers_in_either_layout() -> None:
    older = parts(
        "attempts/1/workers/0/log/000010.log", "attempts/1/workers/0/log/000002.log",
        "attempts/1/workers/0/log/1000000.log",
    )  # fmt: skip
    ordered = parts(
        "attempts/12/log/20260101T120000-0003-000002.log", "attempts/12/log/20260101T130000-0003-000001.log"
    )
    assert joined_logs([*older, *ordered]) == {
        ("logs", "attempt-1-worker-0.log"): [older[1], older[0], older[2]],
        ("logs", "attempt-12-worker-3.log"): [ordered[1], ordered[0]],
    }


def test_each_attempt_and_worker_has_a_log_of_its_own() -> None:
    pieces = parts(
        "attempts/1/log/20260101T120000-0000-000001.log", "attempts/2/log/20260101T120000-0000-000001.log",
        "attempts/1/log/20260101T120000-0010-000001.log",
    )  # fmt: skip
    assert [log[1] for log in joined_logs(pieces)] == [
        "attempt-1-worker-0.log", "attempt-2-worker-0.log", "attempt-1-worker-10.log",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "run.json", "attempts/0/workers/0/log/000001.log", "attempts/1/workers/0/log/1.log",
        "attempts/1/workers/0/log/000001.txt", "attempts/1/workers/x/log/000001.log",
        "attempts/1/log/20260101-0000-000001.log", "attempts/1/log/20260101T120000-0-000001.log",
        "attempts/1/log/20260101T120000-0000-1.log", "x/attempts/1/workers/0/log/000001.log",
        "attempts/1/workers/0/log/000001.log/x", "attempts/1234567890/workers/0/log/000001.log",
    ],
)  # fmt: skip
def test_any_other_file_is_no_piece(path: str) -> None:
    assert joined_logs(parts(path)) == {}
