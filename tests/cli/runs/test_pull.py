"""What `tpuctl pull` takes of a run and says about it, also of one that somebody else has written to."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tests.flows.runs.records import ATTEMPT, CREATED, TPU, write_chunk, write_run
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cli.runs.pull import PartList, steps_of
from tpuctl.cli.session import MOST
from tpuctl.client.runs import steps
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.local_copy import Refusal
from tpuctl.flows.runs.pull import Copied, PullResult, Unfinished
from tpuctl.flows.runs.state import RunState
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


Tpuctl = Callable[..., CommandResult]
Show = Callable[..., CommandResult]
FOLDER = Path("here")
GOOD = runs.Verdict("r1", runs.SUCCEEDED, 1, CREATED, "every script ended")
BAD = runs.Verdict("r1", runs.FAILED, 1, CREATED, "it broke", 3, tpu=TPU)
PLAIN = ["run    r1", "files  12 (1.5 MB), verified", "where  here"]


def checkpoint(step: int | None, size: int = 500) -> Copied:
    return Copied(f"checkpoints/{step}", "orbax", step, size)


def unfinished(count: int) -> tuple[Unfinished, ...]:
    return tuple(
        Unfinished(f"checkpoints/{number}", "orbax", "no commit file") for number in range(1, count + 1)
    )


@pytest.fixture
def show(tpuctl: Tpuctl, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Show:
    """The command, where the copy is a given one: a real one has few of these lines."""
    write_run(bucket)

    def shown(result: PullResult, state: RunState, *options: str) -> CommandResult:
        monkeypatch.setattr(steps, "pull", lambda *arguments, **named: (result, state))
        return tpuctl("pull", "r1", "--to", "here", *options)

    return shown


def test_a_copy_of_a_run_has_its_files_and_the_next_command(show: Show) -> None:
    plain = PullResult(FOLDER, 12, 1_500_000, 0, ())
    shown = show(plain, RunState(GOOD))
    assert (shown.code, shown.out.splitlines()) == (0, PLAIN)
    assert shown.err.splitlines()[1:] == ["Next: tpuctl down"]
    going_on = show(plain, RunState(None))
    assert going_on.out.splitlines() == PLAIN
    assert going_on.err.splitlines()[1:] == [
        "Run 'r1' is still running: these are its files so far.",
        "Next: tpuctl logs -f r1",
    ]
    failed = show(plain, RunState(BAD))
    assert (failed.code, failed.err.splitlines()[1:]) == (
        0,
        ["Run 'r1' failed: it broke.", "Next: tpuctl logs r1 --tail 20"],
    )
    unknown = show(plain, RunState(None, error=BadObjectError("verdict.json", "is no JSON")))
    assert unknown.err.splitlines()[1].startswith("Warning: ")
    assert unknown.err.splitlines()[1].endswith(" How run 'r1' ended is unknown.")
    assert len(unknown.err.splitlines()) == 2


def test_checkpoints_are_counted_and_five_that_are_not_complete_are_named(show: Show) -> None:
    result = PullResult(
        FOLDER, 12, 1_500_000, 4, ("a", "b", "c"),
        checkpoints=(checkpoint(100), checkpoint(20)), unfinished=unfinished(7), incomplete=unfinished(5),
    )  # fmt: skip
    shown = show(result, RunState(GOOD))
    assert shown.out.splitlines() == [
        "run          r1",
        "files        12 (1.5 MB), verified, 4 of them unchanged",
        "where        here",
        "checkpoints  2 checkpoints (1.0 kB), step 20, 100",
        "skipped      3 files of unfinished checkpoints",
    ]
    reasons = [f"checkpoints/{number} (orbax): no commit file." for number in range(1, 6)]
    assert shown.err.splitlines()[1:] == [
        *(f"Skipped {reason}" for reason in reasons),
        "Skipped 2 more unfinished checkpoints.",
        *(f"Not complete: {reason}" for reason in reasons),
        "Next: tpuctl down",
    ]


@pytest.mark.daily
@pytest.mark.parametrize(("number", "count"), [(1, "1 object"), (2, "2 objects")])
def test_a_copy_without_all_objects_ends_with_4(show: Show, number: int, count: str) -> None:
    refused = tuple(Refusal(f"outputs/.{name}", "is a hidden file") for name in "ab"[:number])
    result = PullResult(FOLDER, 12, 1_500_000, 0, (), refused=refused)
    shown = show(result, RunState(GOOD))
    assert (shown.code, shown.out.splitlines()) == (4, PLAIN)
    assert "Warning: outputs/.a is a hidden file: it is left out.\n" in shown.err
    assert (
        f"Error: {count} of run 'r1' cannot be written to this disk; everything else is there.\n" in shown.err
    )
    assert "gcloud storage ls --full --recursive gs://sim-project-tpuctl/runs/r1/\n" in shown.err
    content = show(result, RunState(GOOD), "--json").json
    error = content.pop("error")
    assert content == {
        "schema": 1, "run": "r1", "folder": "here", "files": 12, "bytes": 1_500_000, "kept": 0,
        "uncommitted": [], "checkpoints": [], "unfinished": [], "incomplete": [], "ended": True,
        "refused": [{"name": each.name, "reason": each.reason} for each in refused],
    }  # fmt: skip
    assert (error["kind"], error["exit_code"]) == ("state", 4)
    assert show(PullResult(FOLDER, 1, 1, 0, ()), RunState(None), "--json").json["ended"] is False


@pytest.mark.parametrize(
    ("steps_", "text"),
    [
        ([7], "1 checkpoint (500 B), step 7"),
        ([None], "1 checkpoint (500 B)"),
        ([], "0 checkpoints (0 B)"),
        ([3, 1, None, 3], "4 checkpoints (2.0 kB), step 1, 3"),
        ([5, 4, 3, 2, 1], "5 checkpoints (2.5 kB), step 1, 2, 3, 4, 5"),
        ([6, 5, 4, 3, 2, 1], "6 checkpoints (3.0 kB), step 1 to 6"),
    ],
)
def test_five_steps_are_named_and_more_are_a_range(steps_: list[int | None], text: str) -> None:
    assert steps_of([checkpoint(step) for step in steps_]) == text


def test_parts_are_read_between_commas_and_a_wrong_one_is_refused_with_the_right_ones() -> None:
    parts = frozenset({"logs", "checkpoints"})
    assert PartList().convert("logs, checkpoints", None, None) == parts
    assert PartList().convert(parts, None, None) is parts
    with pytest.raises(click.BadParameter) as error:
        PartList().convert("logs,z,a", None, None)
    assert error.value.message.startswith("'a' is none of ")
    assert "checkpoints" in error.value.message


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


@pytest.mark.daily
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
