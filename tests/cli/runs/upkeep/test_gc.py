"""Which rule `runs gc` applies, and what it says of runs that stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runs.test_queue import await_states
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.runs import upkeep
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep import removal
from tpuctl.flows.runs.upkeep.collection import Collection, Rule
from tpuctl.host.worker.records import FINISHED, RUNNING

Command = Callable[..., CommandResult]
DAY = 86_400


@pytest.fixture
def collected(
    tpuctl: Command, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[CommandResult, Rule, bool]]:
    """The command where the flow answers with given runs that stay: those of 20 runs would take seconds."""

    def call(*options: str, tagged: int = 0, refused: int = 0) -> tuple[CommandResult, Rule, bool]:
        asked: list[tuple[Rule, bool]] = []

        def plan(*arguments: object, is_rehearsal: bool) -> Collection:
            (rule,) = (argument for argument in arguments if isinstance(argument, Rule))
            asked.append((rule, is_rehearsal))
            errors = [StateError(f"Run 'r{number}' goes on.") for number in range(refused)]
            return Collection((), [f"t{number}" for number in range(tagged)], errors)

        monkeypatch.setattr(upkeep, "plan_collection", plan)
        result = tpuctl("runs", "gc", *options)
        ((rule, is_rehearsal),) = asked
        return result, rule, is_rehearsal

    return call


def test_the_newest_twenty_of_the_user_are_kept_unless_options_say_otherwise(
    collected: Callable[..., tuple[CommandResult, Rule, bool]],
) -> None:
    _, rule, is_rehearsal = collected()
    assert (rule.keep, rule.age, bool(rule.owner), is_rehearsal) == (20, 0.0, True, False)
    _, rule, is_rehearsal = collected("--keep", "0", "--older-than", "30d", "--all-users", "--dry-run")
    assert (rule, is_rehearsal) == (Rule(0, "", 30 * DAY), True)


@pytest.mark.parametrize(("refused", "more"), [(1, ""), (5, ""), (6, "1"), (9, "4")])
def test_five_reasons_are_shown_and_others_counted(
    collected: Callable[..., tuple[CommandResult, Rule, bool]], refused: int, more: str
) -> None:
    result, _, _ = collected("--yes", tagged=2, refused=refused)
    kept = [line for line in result.err.splitlines() if line.startswith("Kept")]
    reasons = [f"Kept: Run 'r{number}' goes on." for number in range(min(refused, 5))]
    rest = [f"Kept: {more} more that go on, or may."] if more else []
    assert kept == ["Kept by their tag: t0, t1.", *reasons, *rest]
    assert result.out == ""


def test_where_no_run_is_old_that_is_said_on_stderr(
    collected: Callable[..., tuple[CommandResult, Rule, bool]],
) -> None:
    result, _, _ = collected("--yes")
    assert result.err.splitlines()[-2:] == ["There is no old run to remove.", "Next: tpuctl runs"]
    assert "Kept" not in result.err
    rehearsal, _, _ = collected("--dry-run", tagged=1)
    assert (rehearsal.out, "Kept" in rehearsal.err) == ("", False)


def test_fewer_than_no_run_cannot_be_kept(tpuctl: Command) -> None:
    assert tpuctl("runs", "gc", "--keep", "-1").code == 2


def test_a_run_that_another_job_calls_ended_stays_while_its_host_has_it_at_work(
    tpuctl: Command, node: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.py").write_text(
        '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
        "import time\ntime.sleep(600)\n"
    )
    assert tpuctl("submit", "job.py", "--name", "r1", "--tpu", node).code == 0
    await_states(bucket, "r1", RUNNING)
    paths = StoredRun(bucket, "r1").paths
    forged = json.loads(bucket.read(paths.status(1, 0), 1 << 20)) | {"state": FINISHED, "exit_code": 0}
    bucket.upload(paths.status(1, 0), [json.dumps(forged).encode()], "application/json")
    # the worker writes its own status again, before or after these commands have read that of the other job
    monkeypatch.setattr(removal, "_check_workers", lambda *_: None)
    tpuctl("runs")
    said = f"Run 'r1' is still running on {node}, worker 0."
    refused = tpuctl("rm", "r1", "--yes")
    assert (refused.code, said in refused.err) == (4, True), refused.err
    assert said in tpuctl("runs", "gc", "--keep", "0", "--yes").err
    assert bucket.stat(paths.record)
