"""A folder is the run that it says, or each difference is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.flows.datasets.pets import plan_pets, remove_pets, send
from tests.flows.runs.records import write_chunk
from tests.flows.runs.upkeep.records import write_ended_run
from tpuctl.bucket_layout import bundle
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import UsageError
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.record.verification import BUCKET, FOLDER, Verification, verify
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.staged_folder import STAGING
from tpuctl.runs import encode

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


def details(result: Verification) -> dict[str, str]:
    return {difference.name: difference.detail for difference in result.differences}


def said(result: Verification) -> dict[str, tuple[str, str]]:
    return {check.subject: (check.by, check.detail) for check in result.checks}


class TestWords:
    def test_of_a_difference_say_what_is_here_and_what_is_in_the_record(self, folder: Path) -> None:
        os.truncate(folder / FILE, 3)
        (folder / "outputs/more").write_text("x")
        (folder / "x.txt").write_text("x")
        (folder / "logs/other.log").write_text("x")
        (folder / "checkpoints/model.pt").unlink()
        told = details(offline(folder))
        assert told.pop(FILE).endswith(" 3 here, 10 in the record")
        assert told == {
            "outputs/more": "the run has no such file",
            "x.txt": "the run has no such file",
            "logs/other.log": "there are no pieces of it",
            "checkpoints/model.pt": "it is not in the folder",
        }

    def test_of_checks_count_files(self, folder: Path, bucket: Bucket) -> None:
        result = verify(folder, bucket, bucket)
        assert said(result) == {
            "results": (FOLDER, "2 files, by the checksums in results.json"),
            "logs": (FOLDER, "1 file, by the pieces in attempts/"),
            "files": (BUCKET, f"12 files, by their objects in gs://{bucket.name}"),
        }
        assert result.files == 13, "the joined log, too"
        assert details(result) == {"code": "the bucket has it no more"}

    def test_of_code_that_is_another_name_its_hash(self, folder: Path, bucket: Bucket) -> None:
        bucket.upload(bundle("0" * 64), [b"other code"], "application/gzip")
        result = verify(folder, bucket, bucket)
        assert details(result) == {"code": "the bucket's has another hash"}
        assert said(result)["code 000000000000"] == (BUCKET, "by its SHA-256")

    def test_of_records_of_another_run_name_both(self, folder: Path) -> None:
        swap(folder)
        assert details(offline(folder)) == dict.fromkeys(
            ("results.json", "verdict.json"), "is of run r1, and run.json of r2"
        )

    @pytest.mark.parametrize("name", ["verdict.json", "results.json"])
    def test_of_a_record_that_is_not_here_say_so(self, folder: Path, name: str) -> None:
        (folder / name).unlink()
        result = offline(folder)
        assert said(result)[name] == ("", "it is not in the folder")
        assert result.outcome == ("" if name == "verdict.json" else "succeeded")

    def test_of_what_only_the_bucket_knows_give_the_reason(self, folder: Path) -> None:
        checks = said(verify(folder, None, None))
        assert checks["run.json, verdict and attempts"] == ("", "not asked")
        assert checks["code 000000000000"] == ("", "not asked")

    def test_of_what_the_folder_lacks_are_of_the_bucket(self, folder: Path, bucket: Bucket) -> None:
        (folder / "attempts/1/attempt.json").unlink()
        assert details(verify(folder, bucket, bucket))["attempts/1/attempt.json"] == "the bucket has it"

    def test_of_a_removed_run_name_the_bucket(self, folder: Path, bucket: Bucket) -> None:
        for item in bucket.objects("runs/r1/"):
            bucket.remove(item)
        assert said(verify(folder, bucket, bucket))["files"] == (
            "", f"gs://{bucket.name} has no run r1 any more"
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("none", "There is no folder {}.", "Name one that 'tpuctl pull' has filled."),
        ("", "{}/run.json is not there: the folder is no copy of a run.",
         "Name a folder that 'tpuctl pull' has filled."),
    ],
)  # fmt: skip
def test_what_is_no_copy_is_named(tmp_path: Path, name: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        offline(tmp_path / name)
    assert (refused.value.message, refused.value.hint) == (message.format(tmp_path / name), hint)


class TestDataset:
    """Of a run with a dataset, which the bucket may have changed or removed since."""

    @pytest.fixture
    def trained(self, bucket: Bucket, tmp_path: Path, pictures: Path) -> Path:
        manifest = send(bucket, plan_pets(pictures)).manifest
        record = write_ended_run(bucket, "r1").record
        pinned = PinnedDataset(manifest.name, manifest.version, manifest.digest)
        changed = encode(msgspec.structs.replace(record, dataset=pinned))
        bucket.upload("runs/r1/run.json", [changed], "application/json")
        pull(StoredRun(bucket, "r1"), tmp_path / "copy", lambda text: None)
        return tmp_path / "copy"

    def test_is_checked_by_its_digest(self, trained: Path, bucket: Bucket) -> None:
        assert said(verify(trained, bucket, None))["dataset pets/1.0.0"] == (
            BUCKET, "by its manifest's digest"
        )  # fmt: skip
        assert said(offline(trained))["dataset pets/1.0.0"] == ("", "a test")

    def test_that_was_removed_is_missing(self, trained: Path, bucket: Bucket) -> None:
        remove_pets(bucket)
        detail = details(verify(trained, bucket, bucket))["dataset"]
        assert detail == "the bucket has no pets/1.0.0 any more"

    def test_that_was_made_again_of_other_records_has_changed(
        self, trained: Path, bucket: Bucket, pictures: Path
    ) -> None:
        remove_pets(bucket)
        send(bucket, plan_pets(pictures, seed=1))
        result = verify(trained, bucket, bucket)
        assert details(result)["dataset"] == "pets/1.0.0 has another content by now"
        assert ("changed", "dataset") in differences(result)
