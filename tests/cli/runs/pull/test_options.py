"""What `tpuctl pull` takes of a run, and says about it; two at once, and one that is interrupted."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.runs.records import CREATED, write_chunk, write_run
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.staged_folder import STAGING
from tpuctl.polling import Backoff, poll

Command = Callable[..., CommandResult]
Start = Callable[..., "subprocess.Popen[str]"]
STATE = b"""\
model_checkpoint_path: "ckpt-200"
all_model_checkpoint_paths: "ckpt-100"
all_model_checkpoint_paths: "ckpt-200"
"""
WEIGHTS = bytes(1000)


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    """A run that trains: two checkpoints of TensorFlow, and one that no state file names yet."""
    stored = write_run(bucket)
    write_chunk(stored.last_attempt(), 0, 1, "one\n")
    for step in (100, 200, 300):
        put(bucket, f"checkpoints/ckpt-{step}.index")
        put(bucket, f"checkpoints/ckpt-{step}.data-00000-of-00001", WEIGHTS)
    put(bucket, "checkpoints/checkpoint", STATE)
    put(bucket, "outputs/weights.h5")
    put(bucket, "tensorboard/events")
    return stored


@pytest.fixture
def start(run: StoredRun) -> Iterator[Start]:
    """Starts a command as a process."""
    processes: list[subprocess.Popen[str]] = []

    def call(*arguments: str) -> subprocess.Popen[str]:
        process = commands.start(
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield call
    for process in processes:
        process.kill()
        process.communicate()


def put(bucket: Bucket, name: str, data: bytes = b"x") -> None:
    bucket.upload(f"runs/r1/{name}", [data], "application/octet-stream")


def end(run: StoredRun) -> None:
    run.end(runs.Verdict(run.name, runs.SUCCEEDED, 1, CREATED, "every script ended"))


def copied_steps(folder: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in (folder / "checkpoints").glob("ckpt-*")}


def parts(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()} - {"attempts"}


def whole(run: StoredRun, folder: Path, *, but: str = "ckpt-300") -> None:
    """Compare a folder with the bucket."""
    stored = {item.name.removeprefix(run.paths.folder): item for item in run.bucket.objects(run.paths.folder)}
    for name, item in stored.items():
        if but not in name:
            assert (folder / name).read_bytes() == run.bucket.read(item.name)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == len([name for name in stored if but not in name]) + 1, "the joined log"
    assert not (folder / STAGING).exists()


EVERYTHING = {"checkpoints", "logs", "tensorboard", "outputs"}


@pytest.mark.parametrize(
    ("options", "wanted", "taken", "shown"),
    [
        ((), EVERYTHING, {"100", "200"}, "2 checkpoints (2.0 kB), step 100, 200"),
        (("--latest",), EVERYTHING, {"200"}, "1 checkpoint (1.0 kB), step 200"),
        (("--step", "100"), EVERYTHING, {"100"}, "1 checkpoint (1.0 kB), step 100"),
        (("--unfinished",), EVERYTHING, {"100", "200", "300"}, "2 checkpoints (2.0 kB), step 100, 200"),
        (
            ("--latest", "--only", "logs, checkpoints"),
            {"logs", "checkpoints"}, {"200"}, "1 checkpoint (1.0 kB), step 200",
        ),
        (("--only", "outputs"), {"outputs"}, set(), ""),
    ],
)  # fmt: skip
def test_options_select_and_the_summary_says_what_is_here(
    tpuctl: Command, run: StoredRun, options: tuple[str, ...], wanted: set[str], taken: set[str], shown: str
) -> None:
    result = tpuctl("pull", "r1", *options)
    assert result.code == 0, result.err
    assert parts(Path("r1")) == wanted
    assert copied_steps(Path("r1")) == {f"ckpt-{step}" for step in taken}
    lines = [line.split(maxsplit=1)[1] for line in result.out.splitlines() if line.startswith("checkpoints")]
    assert lines == [shown] * bool(shown)
    has_checkpoints, is_told = "checkpoints" in wanted, "ckpt-300 (TensorFlow): no state file names it."
    assert ("2 files of unfinished checkpoints" in result.out) == (has_checkpoints and "300" not in taken)
    assert (f"Skipped checkpoints/{is_told}" in result.err) == (has_checkpoints and "300" not in taken)
    assert (f"Not complete: checkpoints/{is_told}" in result.err) == ("300" in taken)
    assert "Run 'r1' is still running: these are its files so far." in result.err
    assert result.err.endswith("Next: tpuctl logs -f r1\n")


def test_the_json_form_has_the_same(tpuctl: Command, run: StoredRun) -> None:
    half = {"name": "checkpoints/ckpt-300", "format": "TensorFlow", "reason": "no state file names it"}
    content = tpuctl("pull", "r1", "--latest", "--json").json
    assert [item["step"] for item in content["checkpoints"]] == [200]
    assert content["checkpoints"][0]["size"] == len(WEIGHTS) + 1
    assert (content["unfinished"], content["incomplete"], content["ended"]) == ([half], [], False)
    content = tpuctl("pull", "r1", "--unfinished", "--json").json
    assert (content["unfinished"], content["incomplete"]) == ([], [half])
    assert content["kept"] == 7
    content = tpuctl("pull", "r1", "--only", "logs", "--json", "--to", "logs").json
    assert (content["unfinished"], content["incomplete"], content["checkpoints"]) == ([], [], [])


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--step", "7"), 4, "The newest are of step 100, 200."),
        (("--step", "9" * 30), 4, "There is no committed checkpoint of step 9999"),
        (("--step", "-1"), 2, "-1 is not in the range"),
        (("--step", "1e3"), 2, "'1e3' is not a valid"),
        (("--step", "1", "--latest"), 2, "--latest and --step exclude each other."),
        (("--only", ""), 2, "'' is none of checkpoints, logs, tensorboard, outputs."),
        (("--only", "logs,,"), 2, "'' is none of"),
        (("--only", "../logs"), 2, "'../logs' is none of"),
        (("--only", "\x1b[2Jlogs"), 2, "is none of checkpoints"),
    ],
)
def test_values_that_select_nothing_are_refused(
    tpuctl: Command, run: StoredRun, options: tuple[str, ...], code: int, word: str
) -> None:
    result = tpuctl("pull", "r1", *options)
    assert (result.code, word in result.err) == (code, True), result.err
    assert "\x1b" not in result.err
    assert not [path for path in Path().rglob("*") if path.is_file()]


def test_two_into_one_folder_at_once_are_both_whole(run: StoredRun, start: Start) -> None:
    end(run)
    pulls = [start("pull", "r1", "--to", "both") for _ in range(2)]
    for process in pulls:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    whole(run, Path("both"))


def test_one_that_follows_is_interrupted_and_the_same_command_goes_on_to_the_end(
    run: StoredRun, start: Start, bucket: Bucket
) -> None:
    command = ("pull", "r1", "--follow", "--to", "followed")
    process = start(*command)
    log = Path("followed/logs/attempt-1-worker-0.log")

    def is_here() -> bool | None:
        assert process.poll() is None, process.communicate()
        return log.exists() or None

    poll(is_here, awaiting="the first copy", timeout=300, backoff=Backoff(0.05, 0.2))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Interrupted: followed has not all of run 'r1'." in err
    assert "Run the same command again: what has arrived is kept." in err
    put(bucket, "outputs/later")
    end(run)
    again = start(*command, "--json")
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert '"ended": true' in out
    assert '"kept": 10' in out
    whole(run, Path("followed"))


def test_one_that_follows_ends_where_no_record_can_tell_the_end_any_more(
    run: StoredRun, start: Start, bucket: Bucket
) -> None:
    put(bucket, "verdict.json", b"{")
    out, err = start("pull", "r1", "--follow", "--to", "followed").communicate(timeout=60)
    assert "verdict.json" in err
    assert "How run 'r1' ended is unknown." in err
    assert "followed" in out
    whole(run, Path("followed"))


def test_one_that_is_interrupted_at_a_file_leaves_it_for_the_next(
    run: StoredRun, start: Start, simulator: RunningSimulator, tpuctl: Command
) -> None:
    simulator.faults.add("gcs-stall", method="storage.objects.get", object="*/weights.h5")
    process = start("pull", "r1")

    def has_asked() -> bool | None:
        assert process.poll() is None, process.communicate()
        requests = simulator.events.find(kind="request", service="storage", what="*objects.get")
        return any("weights.h5" in request.resource for request in requests) or None

    poll(has_asked, awaiting="the request", timeout=300, backoff=Backoff(0.05, 0.2))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    simulator.faults.clear()
    end(run)
    result = tpuctl("pull", "r1")
    assert result.code == 0, result.err
    whole(run, Path("r1"))
