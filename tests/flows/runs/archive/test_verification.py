"""A folder is the run that it says, or each difference is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.runs.records import write_chunk
from tests.flows.runs.upkeep.records import write_ended_run
from tpuctl.bucket_layout import bundle
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import UsageError
from tpuctl.flows.runs.archive.differences import BUCKET, FOLDER, Verification
from tpuctl.flows.runs.archive.verification import verify
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.staged_folder import STAGING

FILE = "outputs/deep/er/x"


@pytest.fixture
def folder(bucket: Bucket, tmp_path: Path) -> Path:
    """A copy of a run with an output and two pieces of a log."""
    run = write_ended_run(bucket, "r1", results=True)
    for number in (1, 2):
        write_chunk(run.attempt(1), 0, number, f"line {number}\n")
    pull(StoredRun(bucket, "r1"), tmp_path / "copy", lambda text: None)
    return tmp_path / "copy"


def offline(folder: Path) -> Verification:
    return verify(folder, None, None, "a test")


def differences(result: Verification) -> list[tuple[str, str]]:
    return [(difference.kind, difference.name) for difference in result.differences]


def test_a_copy_is_the_run(folder: Path, bucket: Bucket) -> None:
    result = offline(folder)
    assert (result.run, result.outcome, differences(result)) == ("r1", "succeeded", [])
    said = [(check.subject.split()[0], check.by) for check in result.checks]
    assert said == [("results", FOLDER), ("logs", FOLDER), ("run.json,", ""), ("code", "")]
    assert {check.detail for check in result.checks if not check.by} == {"a test"}


def test_the_bucket_tells_more(folder: Path, bucket: Bucket) -> None:
    result = verify(folder, bucket, bucket)
    assert differences(result) == [("missing", "code")], "there never was any"
    bucket.upload(bundle("0" * 64), [b"other code"], "application/gzip")
    assert differences(verify(folder, bucket, bucket)) == [("changed", "code")]
    files = next(check for check in result.checks if check.subject == "files")
    assert (files.by, files.detail.split()[0]) == (BUCKET, "12")


def change(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[-1] ^= 1
        (folder / name).write_bytes(data)

    return act


def swap(folder: Path) -> None:
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text.replace('"r1"', '"r2"'))


def link(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / FILE).symlink_to(folder / "run.json")


def write(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")

    return act


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (change(FILE), [("changed", FILE)]),
        (change("logs/attempt-1-worker-0.log"), [("changed", "logs/attempt-1-worker-0.log")]),
        (lambda folder: (folder / FILE).unlink(), [("missing", FILE)]),
        (lambda folder: os.truncate(folder / FILE, 3), [("changed", FILE)]),
        (link, [("missing", FILE)]),
        (write("outputs/more"), [("extra", "outputs/more")]),
        (write("x.txt"), [("extra", "x.txt")]),
        (write("attempts"[:3] + "/x"), [("extra", "att/x")]),
        (write("logs/other.log"), [("extra", "logs/other.log")]),
        (write("verdict.json"), [("wrong", "verdict.json")]),
        (write("results.json"), [("wrong", "results.json")]),
        (swap, [("wrong", "results.json"), ("wrong", "verdict.json")]),
        (write("notes.json"), []),
        (write(f"{STAGING}/x"), []),
    ],
)
def test_each_difference_is_named_without_a_network(
    folder: Path, act: Callable[[Path], None], expected: list[tuple[str, str]]
) -> None:
    act(folder)
    assert differences(offline(folder)) == expected


def test_a_record_that_was_made_to_fit_is_found_by_its_digest_and_by_the_bucket(
    folder: Path, bucket: Bucket
) -> None:
    text = (folder / "results.json").read_text()
    (folder / "results.json").write_text(text.replace('"bytes": 10,', '"bytes": 9,', 1))
    assert ("wrong", "results.json") in differences(offline(folder))
    assert ("changed", "results.json") in differences(verify(folder, bucket, bucket))


@pytest.mark.parametrize("name", ["run.json", "attempts/1/attempt.json"])
def test_only_the_bucket_tells_of_a_changed_record(folder: Path, bucket: Bucket, name: str) -> None:
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("v3-32", "v3-64"))
    assert differences(offline(folder)) == []
    assert ("changed", name) in differences(verify(folder, bucket, bucket))


def test_a_run_that_was_removed_from_the_bucket_is_checked_by_the_folder(
    folder: Path, bucket: Bucket
) -> None:
    for item in bucket.objects("runs/r1/"):
        bucket.remove(item)
    result = verify(folder, bucket, bucket)
    assert differences(result) == [("missing", "code")]
    assert any("has no run r1 any more" in check.detail for check in result.checks)


@pytest.mark.parametrize("name", ["", "none", "file"])
def test_what_is_no_copy_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        offline(tmp_path / name)


def test_hostile_names_in_a_record_read_nothing_outside(folder: Path) -> None:
    text = (folder / "results.json").read_text()
    (folder / "results.json").write_text(text.replace(FILE, "../../../../etc/passwd"))
    found = differences(offline(folder))
    assert ("missing", "../../../../etc/passwd") in found
    assert ("extra", FILE) in found
