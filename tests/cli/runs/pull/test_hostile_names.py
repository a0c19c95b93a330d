"""`tpuctl pull` of a run that somebody else has written to: what is unsafe is left out, named and counted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.runs.records import ATTEMPT, CREATED
from tests.running_simulator import CommandResult
from tpuctl import runs
from tpuctl.cli.session import MOST
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun

Command = Callable[..., CommandResult]


def put_file(bucket: Bucket, name: str, data: bytes = b"x") -> None:
    bucket.upload(name, [data], "application/octet-stream")


@pytest.fixture
def hostile_run(bucket: Bucket) -> str:
    """One's own run, with an output."""
    return write_hostile_run(bucket, "mine", runs.submitter())


def write_hostile_run(bucket: Bucket, name: str, submitter: str) -> str:
    stored = StoredRun(bucket, name)
    stored.create(runs.Run(name, CREATED, submitter, "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
    stored.create_attempt(ATTEMPT)
    stored.end(runs.Verdict(name, runs.SUCCEEDED, 1, CREATED, "every script ended"))
    put_file(bucket, f"runs/{name}/outputs/model", b"weights")
    return name


def test_the_rest_is_fetched_and_the_exit_code_says_that_it_is_not_all(
    tpuctl: Command, bucket: Bucket, hostile_run: str
) -> None:
    put_file(bucket, f"runs/{hostile_run}/../../.bashrc")
    put_file(bucket, f"runs/{hostile_run}/.envrc")
    result = tpuctl("pull")
    assert result.code == 4
    assert Path(hostile_run, "outputs/model").read_bytes() == b"weights"
    assert "Warning: runs/mine/../../.bashrc leads out of the folder: it is left out." in result.err
    assert "Warning: runs/mine/.envrc is a hidden file or folder: it is left out." in result.err
    assert "Error: 2 objects of run 'mine' cannot be written to this disk; everything else is" in result.err
    assert f"where  {hostile_run}" in result.out, "what was fetched is shown, too"


def test_the_json_form_has_both_result_and_error(tpuctl: Command, bucket: Bucket, hostile_run: str) -> None:
    put_file(bucket, f"runs/{hostile_run}/.envrc")
    result = tpuctl("pull", "--json")
    assert result.code == 4
    assert result.json["files"] == 5
    assert result.json["refused"] == [{"name": "runs/mine/.envrc", "reason": "is a hidden file or folder"}]
    assert result.json["error"]["kind"] == "state"
    assert tpuctl("pull", "--json", "--to", "again").code == 4
    bucket.remove(
        next(item for item in bucket.objects(f"runs/{hostile_run}/") if item.name.endswith(".envrc"))
    )
    assert tpuctl("pull", "--json").json["refused"] == []


def test_many_are_counted(tpuctl: Command, bucket: Bucket, hostile_run: str) -> None:
    for number in range(MOST + 5):
        put_file(bucket, f"runs/{hostile_run}/.hidden/{number}")
    lines = tpuctl("pull").err.splitlines()
    assert len([line for line in lines if "it is left out" in line]) == MOST
    assert "Warning: 5 more like these." in lines


def test_the_newest_run_of_somebody_else_is_not_taken(
    tpuctl: Command, bucket: Bucket, hostile_run: str
) -> None:
    write_hostile_run(bucket, "theirs", "eve@elsewhere")
    assert tpuctl("pull").code == 0
    assert Path("mine").is_dir()
    assert not Path("theirs").exists()
    assert tpuctl("pull", "theirs").code == 0


def test_a_run_called_git_makes_no_repository(tpuctl: Command, bucket: Bucket) -> None:
    for name, data in {"run.json": b"{}", "config": b"[core]\n", "HEAD": b"ref: refs/heads/main\n"}.items():
        put_file(bucket, f"runs/.git/{name}", data)
    assert tpuctl("pull").code == 4
    assert tpuctl("pull", ".git").code == 2
    assert list(Path().iterdir()) == []


def test_git_executes_nothing_in_a_pulled_folder(
    tpuctl: Command, bucket: Bucket, hostile_run: str, tmp_path: Path
) -> None:
    """The chain of the review, with git itself."""
    mark = tmp_path / "executed"
    config = f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch {mark}; false\n".encode()
    files = {"config": config, "HEAD": b"ref: refs/heads/main\n", "objects/x": b"", "refs/x": b""}
    for place in (".git", "outputs/.git", "outputs/.GIT"):
        for name, data in files.items():
            put_file(bucket, f"runs/{hostile_run}/{place}/{name}", data)
    assert tpuctl("pull").code == 4
    for folder in (hostile_run, f"{hostile_run}/outputs"):
        subprocess.run(["git", "status"], cwd=folder, capture_output=True, timeout=60, check=False)
    assert not mark.exists()
    for name, data in files.items():  # so that this test can fail: what the objects would have made
        path = Path(hostile_run, ".git", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    subprocess.run(["git", "status"], cwd=hostile_run, capture_output=True, timeout=60, check=False)
    assert mark.exists()
