"""What `tpuctl pull` says of a copy, line by line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.flows.runs.records import CREATED, TPU, write_run
from tests.running_simulator import CommandResult
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cli.runs.pull import PartList, steps_of
from tpuctl.client.runs import steps
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.local_copy import Refusal
from tpuctl.flows.runs.pull import Copied, PullResult, Unfinished
from tpuctl.flows.runs.state import RunState

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
