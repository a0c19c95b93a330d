"""A run on this machine: complete, verified, fetched once, and never mixed with anything else."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.flows.runs.records import ATTEMPT, CREATED, write_chunk, write_run
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError, NotFoundError, TpuctlError, UsageError
from tpuctl.flows.runs.pull import PullResult, pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.staged_folder import STAGING, StagedFolder
from tpuctl.runs import Attempt


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    """A run with two chunks of log and an output."""
    stored = write_run(bucket)
    for chunk, text in ((1, "one\ntw"), (2, "o\n")):
        write_chunk(stored.last_attempt(), 0, chunk, text)
    put(bucket, "outputs/model/weights.h5", b"weights")
    return stored


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where to; it does not exist yet."""
    return tmp_path / "out"


def put(bucket: Bucket, name: str, data: bytes) -> None:
    bucket.upload(f"runs/r1/{name}", [data], "application/octet-stream")


def fetch(run: StoredRun, folder: Path) -> PullResult:
    return pull(run, folder, lambda text: None)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def downloads(simulator: RunningSimulator) -> int:
    requests = simulator.events.find(kind="request", service="storage", what="*objects.get")
    return len([request for request in requests if "/runs/r1/" in request.resource])


def test_a_second_one_waits_for_the_first(
    run: StoredRun, folder: Path, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would delete what the other has not completed."""
    begun, waits = threading.Event(), threading.Event()
    download = run.bucket.download

    def hold_until_the_other_waits(*arguments: object) -> None:
        begun.set()
        assert waits.wait(60)
        download(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run.bucket, "download", hold_until_the_other_waits)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetch, run, folder)
        assert begun.wait(60)

        def note(text: str) -> None:
            if text == f"waiting for another command that writes to {folder}":
                waits.set()

        second = pool.submit(pull, run, folder, note)
        results = [first.result(60), second.result(60)]
    assert [result.unchanged for result in results] == [0, results[0].files]
    assert content(folder)["logs/attempt-1-worker-0.log"] == b"one\ntwo\n"
    assert not (folder / STAGING).exists()


def test_a_second_one_of_another_run_leaves_what_the_first_has_filled(
    bucket: Bucket, run: StoredRun, folder: Path
) -> None:
    """When both began the folder was empty."""
    other = write_run(bucket, "r2")
    first = StagedFolder(folder)

    def complete(text: str) -> None:
        if text.startswith("waiting for another command"):
            first.write(bucket.read(other.paths.record), ("run.json",))
            first.__exit__(None, None, None)

    with pytest.raises(UsageError, match="has files that are not of run 'r1'"):
        pull(run, folder, complete)
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_one_that_was_killed_holds_nobody_up(run: StoredRun, folder: Path) -> None:
    folder.mkdir()
    code = "import os, pathlib; from tpuctl.local.staged_folder import StagedFolder\n"
    code += f"StagedFolder(pathlib.Path({str(folder)!r})); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (folder / STAGING).exists()
    assert fetch(run, folder).unchanged == 0


def test_every_file_is_fetched_as_it_is_in_the_bucket(bucket: Bucket, run: StoredRun, folder: Path) -> None:
    reports = list[str]()
    result = pull(run, folder, reports.append)
    stored = {
        listed.name.removeprefix("runs/r1/"): bucket.read(listed.name)
        for listed in bucket.objects("runs/r1/")
    }
    joined = {"logs/attempt-1-worker-0.log": b"one\ntwo\n"}
    assert content(folder) == {**stored, **joined}
    size = sum(map(len, stored.values()))
    assert result == PullResult(folder, len(stored), size, 0, ())
    assert reports == [f"fetching {len(stored)} files"]


def test_a_file_that_is_stored_compressed_arrives_as_it_is_stored(
    bucket: Bucket, run: StoredRun, simulator: RunningSimulator, folder: Path
) -> None:
    """As by `gcloud storage cp --gzip-local-all`; unpacked it would have another size, perhaps a huge one."""
    blob = storage_client(simulator).bucket(bucket.name).blob("runs/r1/outputs/metrics.json")
    blob.content_encoding = "gzip"
    packed = gzip.compress(bytes(1 << 20))
    blob.upload_from_string(packed, content_type="application/json")
    assert fetch(run, folder).refused == ()
    assert content(folder)["outputs/metrics.json"] == packed
    assert fetch(run, folder).unchanged == len(bucket.objects("runs/r1/"))


def storage_client(simulator: RunningSimulator) -> storage.Client:
    """Return Google's own client."""
    endpoint = {"api_endpoint": simulator.simulator.endpoints["storage"]}
    return storage.Client("sim-project", AnonymousCredentials(), client_options=endpoint)  # type: ignore[no-untyped-call]


def test_logs_are_joined_for_each_attempt_and_worker_in_the_order_of_their_chunks(
    run: StoredRun, folder: Path
) -> None:
    run.create_attempt(Attempt(2, CREATED, ATTEMPT.tpu, (0, 1)))
    for chunk in range(1, 12):
        write_chunk(run.last_attempt(), 1, chunk, f"{chunk} ")
    for chunk, time in ((2, "000001"), (1, "000002")):  # the second was named before it could be written
        name = f"{run.paths.ordered_logs(2)}20260101T{time}-0000-{chunk:06}.log"
        run.bucket.create(name, f"piece {chunk}\n".encode(), "text/plain")
    fetch(run, folder)
    logs = {name: data for name, data in content(folder).items() if name.startswith("logs/")}
    assert logs == {
        "logs/attempt-1-worker-0.log": b"one\ntwo\n",
        "logs/attempt-2-worker-0.log": b"piece 1\npiece 2\n",
        "logs/attempt-2-worker-1.log": b"1 2 3 4 5 6 7 8 9 10 11 ",
    }


def test_files_that_are_unchanged_are_not_fetched_again(
    bucket: Bucket, simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    first = fetch(run, folder)
    before = downloads(simulator)
    assert fetch(run, folder).unchanged == first.files
    assert downloads(simulator) == before
    (folder / "outputs/model/weights.h5").write_bytes(b"wei6hts")  # of the same size
    put(bucket, "outputs/more.txt", b"more")
    again = fetch(run, folder)
    assert (again.files, again.unchanged) == (first.files + 1, first.files - 1)
    assert content(folder)["outputs/model/weights.h5"] == b"weights"
    assert downloads(simulator) == before + 2


def test_unfinished_checkpoints_are_named_and_not_fetched(
    bucket: Bucket, run: StoredRun, folder: Path
) -> None:
    put(bucket, "checkpoints/ckpt-1.index", b"1")
    result = fetch(run, folder)
    assert result.uncommitted == ("runs/r1/checkpoints/ckpt-1.index",)
    assert not (folder / "checkpoints").exists()


def test_a_file_that_arrives_damaged_does_not_stay(
    simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    simulator.faults.add("gcs-corrupt", method="storage.objects.get", object="*/weights.h5")
    with pytest.raises(DeadlineError, match=r"weights\.h5 arrived damaged"):
        fetch(run, folder)
    assert not list(folder.rglob("weights.h5*"))


def test_a_pull_that_broke_off_anywhere_is_completed_by_the_next(
    simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    """403 is not retried: at that moment a pull ends, as by Ctrl-C."""
    for name in ("run.json", "attempt.json", "000001.log", "weights.h5"):
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.get", object=f"*/{name}"
        )
        with pytest.raises(TpuctlError):
            fetch(run, folder)
        simulator.faults.remove(fault.id)
        fetch(run, folder)
        shutil.rmtree(folder)


def test_a_pull_that_broke_off_names_no_checkpoint_that_it_lacks(
    bucket: Bucket, simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    put(bucket, "checkpoints/ckpt-1.index", b"1")
    put(bucket, "checkpoints/ckpt-1.data-00000-of-00001", b"1")
    put(bucket, "checkpoints/checkpoint", b'model_checkpoint_path: "ckpt-1"\n')
    simulator.faults.add("gcs-error", status="403", method="storage.objects.get", object="*/ckpt-1.index")
    with pytest.raises(TpuctlError):
        fetch(run, folder)
    assert "outputs/model/weights.h5" in content(folder)
    assert "checkpoints/checkpoint" not in content(folder)
    simulator.faults.clear()
    fetch(run, folder)
    assert "checkpoints/checkpoint" in content(folder)


def test_an_unknown_run_is_named_and_nothing_is_made(bucket: Bucket, folder: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no run 'r9'"):
        fetch(StoredRun(bucket, "r9"), folder)
    assert not (folder).exists()


class TestFolder:
    def test_an_empty_folder_is_filled(self, run: StoredRun, folder: Path) -> None:
        folder.mkdir()
        fetch(run, folder)
        assert (folder / "run.json").is_file()

    def test_a_folder_of_a_pull_that_was_killed_at_its_first_file_is_filled(
        self, run: StoredRun, folder: Path
    ) -> None:
        (folder / STAGING).mkdir(parents=True)
        (folder / STAGING / "0").write_bytes(b"{")
        fetch(run, folder)
        assert not (folder / STAGING).exists()

    @pytest.mark.parametrize("file", ["photo.jpg", "run.json/photo.jpg", "weights.part"])
    def test_a_folder_with_other_files_is_left_alone(self, run: StoredRun, folder: Path, file: str) -> None:
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_bytes(b"mine")
        with pytest.raises(UsageError, match="has files that are not of run 'r1'") as refused:
            fetch(run, folder)
        assert refused.value.hint == "Name another folder with --to."
        assert content(folder) == {file: b"mine"}

    def test_a_folder_with_another_run_is_left_alone(
        self, bucket: Bucket, run: StoredRun, folder: Path
    ) -> None:
        fetch(run, folder)
        before = content(folder)
        with pytest.raises(UsageError, match="has files that are not of run 'r2'"):
            fetch(write_run(bucket, "r2"), folder)
        assert content(folder) == before

    def test_a_file_in_the_way_is_named_with_the_reason(self, run: StoredRun, folder: Path) -> None:
        folder.write_bytes(b"mine")
        with pytest.raises(UsageError, match=r"/out cannot be written: (File exists|Not a directory)\."):
            fetch(run, folder)
        assert folder.read_bytes() == b"mine"


def refused(result: PullResult) -> dict[str, str]:
    """Return the reasons by the names in the run's folder."""
    return {refusal.name.removeprefix("runs/r1/"): refusal.reason for refusal in result.refused}


REFUSED = {
    "../outside.txt": "leads out of the folder",
    "outputs/../../outside.txt": "leads out of the folder",
    "/etc/passwd": "leads out of the folder",
    "outputs//x": "leads out of the folder",
    ".git/config": "is a hidden file or folder",
    ".bashrc": "is a hidden file or folder",
    "outputs/.git/config": "is a folder of version control",
    "outputs/.GIT/config": "is a folder of version control",
    "outputs/.git": "is a folder of version control",
    "outputs/git~1/config": "is a folder of version control",
    "outputs/.g\u200cit/config": "is a folder of version control",
    "outputs/.hg/hgrc": "is a folder of version control",
    "HEAD": "would make the folder a git repository",
    "tpuctl.toml": "is a file of settings for tpuctl",
    "C:\\x": "is a path of another system",
    "outputs/a\x1b[2J": "has control characters",
    "outputs/" + "x" * 300: "is too long for a file",
}


class TestHostileName:
    @pytest.mark.parametrize("name", REFUSED)
    def test_is_left_out_and_the_rest_is_fetched(
        self, bucket: Bucket, run: StoredRun, folder: Path, name: str
    ) -> None:
        put(bucket, name, b"x")
        result = fetch(run, folder)
        assert refused(result) == {name: REFUSED[name]}
        assert content(folder)["outputs/model/weights.h5"] == b"weights"
        assert len(content(folder)) == result.files + 1, "the joined log"
        assert sorted(path.name for path in folder.parent.iterdir() if path.name == "outside.txt") == []

    @pytest.mark.parametrize(
        "name", ["outputs/a:b", "outputs/.zattrs", "outputs/größe ☃.txt", "outputs/...", "outputs/x" * 90]
    )
    def test_is_none_that_is_merely_unusual(
        self, bucket: Bucket, run: StoredRun, folder: Path, name: str
    ) -> None:
        put(bucket, name, b"x")
        assert fetch(run, folder).refused == ()
        assert content(folder)[name] == b"x"

    def test_of_a_file_beside_a_folder_yields_to_the_folder(
        self, bucket: Bucket, run: StoredRun, folder: Path
    ) -> None:
        put(bucket, "outputs", b"x")
        put(bucket, "outputs/model", b"x")
        put(bucket, "logs", b"x")
        assert refused(fetch(run, folder)) == dict.fromkeys(
            ["logs", "outputs", "outputs/model"], "has the name of a folder"
        )
        assert content(folder)["outputs/model/weights.h5"] == b"weights"

    def test_takes_no_place_of_the_runs_own_files(self, bucket: Bucket, run: StoredRun, folder: Path) -> None:
        put(bucket, "run.json/x", b"x")
        put(bucket, "logs/attempt-1-worker-0.log", b"forged")
        put(bucket, "logs/other.log", b"of the job")
        assert set(refused(fetch(run, folder))) == {"run.json/x", "logs/attempt-1-worker-0.log"}
        assert content(folder)["logs/attempt-1-worker-0.log"] == b"one\ntwo\n"
        assert content(folder)["logs/other.log"] == b"of the job"

    def test_of_no_attempt_makes_no_log(self, bucket: Bucket, run: StoredRun, folder: Path) -> None:
        for name in ("²/workers/0/log/000001.log", "1/workers/x/log/000001.log", "1/workers/0/log/z.log"):
            put(bucket, f"attempts/{name}", b"x")
        fetch(run, folder)
        assert [name for name in content(folder) if name.startswith("logs/")] == [
            "logs/attempt-1-worker-0.log"
        ]

    def test_has_two_files_on_a_disk_that_tells_case_apart(
        self, bucket: Bucket, run: StoredRun, folder: Path
    ) -> None:
        put(bucket, "outputs/W.npy", b"W")
        put(bucket, "outputs/w.npy", b"w")
        result = fetch(run, folder)
        assert set(refused(result)) <= {"outputs/w.npy"}, "on a disk that does not, the first one stays"
        assert content(folder)["outputs/W.npy"] == b"W"


class TestPlantedFile:
    """What somebody put into the folder before: an archive that was unpacked, or another user."""

    @pytest.fixture
    def private(self, tmp_path: Path) -> Path:
        (tmp_path / "private").mkdir()
        (tmp_path / "private/weights.h5").write_bytes(b"mine")
        return tmp_path / "private"

    @pytest.mark.parametrize("place", ["outputs", "outputs/model", "outputs/model/weights.h5"])
    @pytest.mark.parametrize("dangling", [False, True])
    def test_a_link_is_not_followed(
        self, run: StoredRun, folder: Path, private: Path, place: str, dangling: bool
    ) -> None:
        (folder / place).parent.mkdir(parents=True)
        (folder / "run.json").write_bytes(run.bucket.read("runs/r1/run.json"))
        target = private / "weights.h5" if place.endswith("h5") else private
        (folder / place).symlink_to(private / "nothing" if dangling else target)
        assert set(refused(fetch(run, folder))) == {"outputs/model/weights.h5"}
        assert [path.name for path in private.rglob("*")] == ["weights.h5"]
        assert (private / "weights.h5").read_bytes() == b"mine"
        assert (folder / place).is_symlink()

    @pytest.mark.parametrize("place", ["logs", "logs/attempt-1-worker-0.log", STAGING])
    def test_a_link_in_place_of_what_pull_itself_writes_is_not_followed(
        self, run: StoredRun, folder: Path, private: Path, place: str
    ) -> None:
        fetch(run, folder)
        shutil.rmtree(folder / "logs")
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).symlink_to(private / "weights.h5" if place.endswith(".log") else private)
        result = fetch(run, folder)
        assert set(refused(result)) == (set() if place == STAGING else {"logs/attempt-1-worker-0.log"})
        assert [path.name for path in private.rglob("*")] == ["weights.h5"]
        assert (private / "weights.h5").read_bytes() == b"mine"

    @pytest.mark.parametrize("kind", ["pipe", "folder"])
    def test_a_pipe_or_a_folder_is_left_alone(self, run: StoredRun, folder: Path, kind: str) -> None:
        fetch(run, folder)
        place = folder / "outputs/model/weights.h5"
        place.unlink()
        os.mkfifo(place) if kind == "pipe" else place.mkdir()
        assert refused(fetch(run, folder)) == {
            "outputs/model/weights.h5": "has something else in its place: a link, a folder, or no file at all"
        }
        assert place.is_fifo() or place.is_dir()

    def test_a_file_that_is_linked_elsewhere_keeps_its_content(
        self, run: StoredRun, folder: Path, private: Path
    ) -> None:
        fetch(run, folder)
        place = folder / "outputs/model/weights.h5"
        place.unlink()
        place.hardlink_to(private / "weights.h5")
        assert fetch(run, folder).refused == ()
        assert (private / "weights.h5").read_bytes() == b"mine"
        assert place.read_bytes() == b"weights"


def test_no_file_is_executable(bucket: Bucket, run: StoredRun, folder: Path) -> None:
    put(bucket, "outputs/run.sh", b"#!/bin/sh\n")
    mask = os.umask(0o022)
    try:
        fetch(run, folder)
    finally:
        os.umask(mask)
    modes = {path.stat().st_mode & 0o7777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o644}
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_dir()} == {0o755}


def test_a_planted_repository_executes_nothing(bucket: Bucket, run: StoredRun, folder: Path) -> None:
    """The chain of the review: objects become a repository, and git obeys its configuration."""
    mark = folder.parent / "executed"
    config = (
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch {mark}; false\n\tworktree = .\n"
    ).encode()
    places = [".git/", "outputs/.git/", "", "outputs/", "outputs/model/", ".GIT/", "outputs/.git./"]
    for place in places:
        for name, data in {"config": config, "HEAD": b"ref: refs/heads/main\n"}.items():
            put(bucket, f"{place}{name}", data)
        for name in ("objects/x", "refs/x"):
            put(bucket, f"{place}{name}", b"")
    fetch(run, folder)
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        process = subprocess.run(["git", "status"], cwd=place, capture_output=True, timeout=60, check=False)
        assert process.returncode == 128, "there is no repository"
    assert not mark.exists()
    for place in ("outputs/", ""):  # so that this test can fail: with its HEAD git takes it for one
        (folder / place / "HEAD").write_text("ref: refs/heads/main\n")
        subprocess.run(["git", "status"], cwd=folder / place, capture_output=True, timeout=60, check=False)
        assert mark.exists()
        mark.unlink()
