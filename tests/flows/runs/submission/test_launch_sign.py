"""A start that takes long gives signs, so that the workers which wait know that it goes on."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_sign
from tpuctl.flows.runs.submission.launch_sign import FIRST, INTERVAL, LaunchSign
from tpuctl.host import timing
from tpuctl.polling import Backoff, poll

NAME = "runs/r1/attempts/2/launch.json"


def signs(bucket: Bucket) -> int:
    """The generation of the last sign; 0 before the first."""
    item = bucket.stat(NAME)
    return item.generation if item else 0


def await_sign_after(bucket: Bucket, last: int) -> int:
    return poll(
        lambda: now if (now := signs(bucket)) > last else None,
        awaiting="a sign", timeout=60, backoff=Backoff(0.01, 0.1),
    )  # fmt: skip


def test_it_is_given_again_and_again_until_the_start_is_over(bucket: Bucket) -> None:
    with LaunchSign(StoredRun(bucket, "r1"), 2, first=0.0, interval=0.01):
        first = await_sign_after(bucket, 0)
        await_sign_after(bucket, first)
    last = signs(bucket)
    assert signs(bucket) == last


def test_a_start_that_takes_no_time_writes_nothing(bucket: Bucket) -> None:
    with LaunchSign(StoredRun(bucket, "r1"), 2):
        pass
    assert bucket.objects("runs/") == []
    assert FIRST + INTERVAL < timing.LAUNCH_SILENCE, "the first two are there before workers ask"


def test_a_bucket_that_does_not_answer_ends_no_start(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, refused = bucket.upload, list[str]()

    def refuse_once(name: str, *rest: object) -> object:
        if not refused:
            refused.append(name)
            raise DeadlineError("gs://b does not answer.")
        return upload(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(bucket, "upload", refuse_once)
    with LaunchSign(StoredRun(bucket, "r1"), 2, first=0.0, interval=0.01):
        await_sign_after(bucket, 0)
    assert refused == [NAME]


def test_the_first_comes_after_twenty_seconds_and_another_each_fifteen(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, over = list[float](), threading.Event()

    class Ended:
        """An event that three pauses take no time to wait for."""

        def wait(self, seconds: float) -> bool:
            pauses.append(seconds)
            return len(pauses) == 3 and not over.set()

        def set(self) -> None: ...

    fake = SimpleNamespace(Event=Ended, Thread=threading.Thread)
    monkeypatch.setattr(launch_sign, "threading", fake)
    with LaunchSign(StoredRun(bucket, "r1"), 2):
        assert over.wait(60)
    assert pauses == [20.0, 15.0, 15.0]
    assert b'"by"' in bucket.read(NAME)
