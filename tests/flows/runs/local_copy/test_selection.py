"""Parts of a run: one step, the newest, some folders; and a copy that follows the run to its end."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.flows.runs.records import write_chunk, write_run
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.errors import DeadlineError, NotFoundError
from tpuctl.flows.runs.checkpoints import Checkpoint, Listing
from tpuctl.flows.runs.local_copy import Selection, part_of
from tpuctl.flows.runs.pull import PullResult, follow, pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.object_content import Content

STATE = b"""\
model_checkpoint_path: "ckpt-2"
all_model_checkpoint_paths: "ckpt-1"
all_model_checkpoint_paths: "ckpt-2"
"""


def put(bucket: Bucket, name: str, data: bytes = b"x") -> None:
    bucket.upload(f"runs/r1/{name}", [data], "application/octet-stream")


def put_checkpoint(bucket: Bucket, step: int) -> None:
    for suffix in ("index", "data-00000-of-00001"):
        put(bucket, f"checkpoints/ckpt-{step}.{suffix}", str(step).encode())


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    stored = write_run(bucket)
    write_chunk(stored.last_attempt(), 0, 1, "one\n")
    for step in (1, 2, 3):
        put_checkpoint(bucket, step)
    put(bucket, "checkpoints/checkpoint", STATE)
    put(bucket, "outputs/weights-2.h5")
    put(bucket, "tensorboard/events")
    return stored


def fetch(run: StoredRun, folder: Path, selection: Selection) -> PullResult:
    return pull(run, folder, lambda text: None, selection)


def names(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths}


RECORDS = {"run.json", "attempts/1/attempt.json"}
LOGS = {"logs/attempt-1-worker-0.log", "attempts/1/workers/0/log/000001.log"}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ({"logs"}, LOGS),
        ({"outputs", "tensorboard"}, {"outputs/weights-2.h5", "tensorboard/events"}),
        ((), set()),
    ],
)
def test_parts_come_with_the_records(
    run: StoredRun, tmp_path: Path, only: Collection[str], expected: set[str]
) -> None:
    fetch(run, tmp_path / "r1", Selection(only))
    assert names(tmp_path / "r1") == RECORDS | expected


@pytest.mark.parametrize(("selection", "step"), [(Selection(latest=True), 2), (Selection(step=1), 1)])
def test_the_state_file_names_the_step_that_is_here(
    run: StoredRun, tmp_path: Path, selection: Selection, step: int
) -> None:
    result = fetch(run, tmp_path / "r1", selection)
    own = {f"checkpoints/ckpt-{step}.index", f"checkpoints/ckpt-{step}.data-00000-of-00001"}
    assert {name for name in names(tmp_path / "r1") if "ckpt-" in name} == own
    state = (tmp_path / "r1/checkpoints/checkpoint").read_text()
    assert state == f'model_checkpoint_path: "ckpt-{step}"\nall_model_checkpoint_paths: "ckpt-{step}"\n'
    assert [checkpoint.step for checkpoint in result.checkpoints] == [step]


def test_a_step_that_is_not_committed_is_named_with_those_that_are(run: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no committed checkpoint of step 3") as missing:
        fetch(run, tmp_path / "r1", Selection(step=3))
    assert missing.value.hint == "The newest are of step 1, 2."


def test_unfinished_ones_come_if_asked_for(run: StoredRun, tmp_path: Path) -> None:
    result = fetch(run, tmp_path / "r1", Selection(unfinished=True))
    assert "checkpoints/ckpt-3.index" in names(tmp_path / "r1")
    assert result.unfinished == ()


def test_a_copy_that_follows_has_what_the_bucket_has_at_the_end(
    bucket: Bucket, run: StoredRun, simulator: RunningSimulator, tmp_path: Path
) -> None:
    def downloads() -> int:
        found = simulator.events.find(kind="request", service="storage", what="*objects.get")
        return len([request for request in found if "weights-2.h5" in request.resource])

    looks = iter([False, False, True])

    def train(seconds: float) -> None:
        assert seconds == 10.0
        put_checkpoint(bucket, 3)
        put(bucket, "checkpoints/checkpoint", b'model_checkpoint_path: "ckpt-3"\n')
        for item in bucket.objects("runs/r1/checkpoints/ckpt-1."):
            bucket.remove(item)

    result = follow(run, tmp_path / "r1", lambda text: None, lambda: next(looks), sleep=train)
    stored = {item.name.removeprefix("runs/r1/") for item in bucket.objects("runs/r1/")}
    assert names(tmp_path / "r1") == {name for name in stored if "ckpt-2" not in name} | LOGS
    assert [checkpoint.step for checkpoint in result.checkpoints] == [3]
    assert downloads() == 1, "what is unchanged was fetched once"


def test_a_copy_that_follows_outlasts_what_does_not_answer_and_says_so_once(
    bucket: Bucket, run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, read = list[str](), Bucket.download

    def fail(own: Bucket, item: Object, *rest: Any) -> None:
        if "ckpt-2.data" in item.name:
            raise DeadlineError("No answer.")
        read(own, item, *rest)

    def has_ended() -> bool:
        look = next(looks)
        monkeypatch.setattr(Bucket, "download", read if look > 4 else fail)
        if look < 3:
            raise DeadlineError("No answer.")
        return look == 6

    looks = iter(range(1, 7))
    result = follow(run, tmp_path / "r1", reports.append, has_ended, sleep=lambda seconds: None)
    stored = {item.name.removeprefix("runs/r1/") for item in bucket.objects("runs/r1/")}
    assert names(tmp_path / "r1") == {name for name in stored if "ckpt-3" not in name} | LOGS
    assert [checkpoint.step for checkpoint in result.checkpoints] == [1, 2]
    assert [text for text in reports if "fetching" not in text] == ["No answer. Still following."]


def test_a_copy_that_follows_fails_where_the_bucket_does_not_answer_after_the_end(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(own: Bucket, item: Object, *rest: Any) -> None:
        raise DeadlineError("No answer.")

    monkeypatch.setattr(Bucket, "download", fail)
    with pytest.raises(DeadlineError, match="No answer"):
        follow(run, tmp_path / "r1", lambda text: None, lambda: True)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("run.json", "records"), ("attempts/1/attempt.json", "records"),
        ("attempts/1/workers/0/status.json", "records"), ("attempts/1/workers/0/log/000001.log", "logs"),
        ("attempts/1/log/20260101T120000-0000-000001.log", "logs"), ("attempts/1/log/a\nb", "logs"),
        ("attempts/1/log", "records"), ("log/x", "records"), ("checkpoints/a", "checkpoints"),
        ("tensorboard/a", "tensorboard"), ("outputs/attempts/1/log/x", "outputs"), ("logs/x", "records"),
    ],
)  # fmt: skip
def test_an_object_is_of_one_part(name: str, part: str) -> None:
    assert part_of(name) == part
    assert Selection(()).has_part(name) == (part == "records")
    assert Selection((part,)).has_part(name)


def committed(*steps: int | None) -> tuple[Listing, list[Checkpoint]]:
    """Return checkpoints of these steps, each written after the one before."""
    names = [f"runs/r1/checkpoints/{number}" for number in range(len(steps))]
    objects = [
        Object(name, Content.of(b"x"), generation, "2026-01-01T12:00:00Z")
        for generation, name in enumerate(names, start=1)
    ]
    nothing: Any = None
    return Listing(nothing, objects), [
        Checkpoint(name, "TensorFlow", step, (name,)) for name, step in zip(names, steps, strict=True)
    ]


@pytest.mark.parametrize(
    ("selection", "steps", "chosen"),
    [
        (Selection(), (1, 2, None), [0, 1, 2]), (Selection(step=2), (1, 2, 2), [1, 2]),
        (Selection(step=0), (0, 1), [0]), (Selection(latest=True), (1, 3, 2), [2]),
        (Selection(latest=True), (2, 1, 2), [0, 2]), (Selection(latest=True), (None, 1, None), [2]),
        (Selection(latest=True), (), []), (Selection(), (), []),
    ],
)  # fmt: skip
def test_a_step_or_the_newest_is_chosen(
    selection: Selection, steps: tuple[int | None, ...], chosen: list[int]
) -> None:
    listing, checkpoints = committed(*steps)
    assert selection.choose(listing, checkpoints) == [checkpoints[number] for number in chosen]


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        ((), "The run has no committed checkpoint."),
        ((None,), "Its checkpoints have no number in their names."),
        ((3, 1, 3, None), "The newest are of step 1, 3."),
        (tuple(range(12)), "The newest are of step 2, 3, 4, 5, 6, 7, 8, 9, 10, 11."),
    ],
)  # fmt: skip
def test_without_the_step_the_newest_are_named(steps: tuple[int | None, ...], hint: str) -> None:
    with pytest.raises(NotFoundError) as missing:
        Selection(step=99).choose(*committed(*steps))
    assert missing.value.message == "There is no committed checkpoint of step 99."
    assert (missing.value.hint, missing.value.facts) == (hint, {"step": 99})
