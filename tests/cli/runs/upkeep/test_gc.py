"""Which rule `runs gc` applies, and what it says of runs that stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.runs import upkeep
from tpuctl.errors import StateError
from tpuctl.flows.runs.upkeep.collection import Collection, Rule

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
