"""A whole run that stops in the middle: what goes on, what bills, and the commands that help."""

from __future__ import annotations

import pytest

from tpuctl.errors import (
    ConfigError,
    DeclinedError,
    HostError,
    InterruptedByUser,
    StockoutError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.runs.whole import EARLIER, Phase, Position, failed, interrupted

TYPED = ("run", "job.py", "--name", "r1")
AGAIN = "tpuctl run job.py --name r1"


def position(phase: Phase, node: str = "n1", *, has_node: bool = True, is_kept: bool = False) -> Position:
    return Position("r1", TYPED, phase, node, "z" if node else "", has_node, is_kept)


@pytest.mark.parametrize(
    ("at", "standing", "commands"),
    [
        (position(Phase.CREATING, has_node=False),
          "run 'r1' is not started yet, and node 'n1' in z may bill.",
         "Continue: {again}\nDelete the node: tpuctl down n1"),
        (position(Phase.STARTING), "run 'r1' may have started, and goes on then, and node 'n1' in z bills.",
         "Continue: {again}\nStop the run: tpuctl cancel r1\nDelete the node: tpuctl down n1"),
        (position(Phase.RUNNING), "run 'r1' goes on, and node 'n1' in z bills.",
         "Continue: {again}\nStop the run: tpuctl cancel r1\nDelete the node: tpuctl down n1"),
        (position(Phase.RUNNING, is_kept=True), "run 'r1' goes on, and node 'n1' in z bills.",
         "Continue: {again}\nStop the run: tpuctl cancel r1"),
        (position(Phase.RESTARTING, ""), "run 'r1' is to be started again.",
         "Continue: {again}\nStop the run: tpuctl cancel r1"),
        (position(Phase.FETCHING),
          "run 'r1' has ended, and its files are not all here, and node 'n1' in z bills.",
         "Continue: {again}\nDelete the node: tpuctl down n1"),
        (position(Phase.DELETING), "run 'r1' has ended, and its files are here, and node 'n1' in z bills.",
         "Continue: {again}\nDelete the node: tpuctl down n1"),
        (position(Phase.DELETING, is_kept=True),
         "run 'r1' has ended, and its files are here, and node 'n1' in z bills.", "Continue: {again}"),
    ],
)  # fmt: skip
def test_ctrl_c_says_what_goes_on_and_what_bills(at: Position, standing: str, commands: str) -> None:
    error = interrupted(at, KeyboardInterrupt())
    assert error.message == f"Interrupted; {standing}"
    assert error.hint == commands.format(again=AGAIN)
    assert error.facts == {"run": "r1", **({"may_bill": ["n1 in z"]} if at.node else {})}


def test_ctrl_c_in_a_creation_says_in_which_zones_the_node_may_be() -> None:
    creating = InterruptedByUser("Interrupted.", may_bill=["n1 in z", "n1 in y"])
    error = interrupted(Position("r1", AGAIN, Phase.CREATING, "n1"), creating)
    assert error.message.endswith("and node 'n1' in z or y may bill.")


def test_ctrl_c_before_anything_was_sent_says_so() -> None:
    error = interrupted(Position("r1", TYPED), KeyboardInterrupt())
    assert (error.message, error.hint, error.facts) == ("Interrupted; nothing was started.", "", {})


def test_before_anybody_knows_how_far_a_named_run_is_what_it_has_may_bill() -> None:
    """An earlier command may have made its TPU; this one was ended while it looked."""
    named = Position("r1", TYPED, is_named=True)
    stopped = interrupted(named, KeyboardInterrupt())
    assert stopped.message == (
        "Interrupted; this command has started nothing. "
        "What an earlier one has begun for run 'r1' goes on, and may bill."
    )
    assert stopped.hint == f"{EARLIER}\nContinue: {named.again}"
    refused = failed(named, ConfigError("No permission.", hint="Ask."))
    assert isinstance(refused, ConfigError)
    assert refused.hint == f"Ask.\n{EARLIER}"
    assert getattr(failed(named, UsageError("Wrong.", hint="")), "hint", None) == ""


class TestFailure:
    def test_before_anything_was_sent_is_as_it_is(self) -> None:
        error = failed(Position("r1", TYPED), HostError("No.", hint="Look."))
        assert isinstance(error, TpuctlError)
        assert (error.message, error.hint, error.facts) == ("No.", "Look.", {})

    @pytest.mark.parametrize(
        ("error", "hint"),
        [
            (StockoutError("No.", hint="Wait."),
             f"Try again: {AGAIN}\nTry every zone: {AGAIN} --zone any\n"
             f"Keep trying: {AGAIN} --wait-capacity 6h"),
            (HostError("No.", hint="Look."), f"Look.\nTry again: {AGAIN}"),
            (HostError("No."), f"Try again: {AGAIN}"),
            (HostError("No.", hint="Look.", may_bill=["n1"]), "Look."),
            (StockoutError("No.", hint="Look.", may_bill=["n1"]), "Look."),
        ],
    )  # fmt: skip
    def test_of_a_creation_has_said_what_bills(self, error: TpuctlError, hint: str) -> None:
        bills = error.facts.get("may_bill")
        told = failed(position(Phase.CREATING, has_node=False), error)
        assert told is error
        assert isinstance(told, TpuctlError)
        assert (told.message, told.hint, told.facts["run"]) == ("No.", hint, "r1")
        assert told.facts.get("may_bill") == bills

    @pytest.mark.parametrize(("node", "bills"), [("n1", {"may_bill": ["n1 in z"]}), ("", {})])
    def test_of_a_run_says_what_goes_on(self, node: str, bills: dict[str, object]) -> None:
        at = position(Phase.RUNNING, node)
        error = failed(at, HostError("It is lost.", hint="Look."))
        assert isinstance(error, TpuctlError)
        assert error.message == f"It is lost. R{at.standing[1:]}"
        assert error.hint == f"Look.\n{at.commands}"
        assert error.facts == {"run": "r1", **bills}

    def test_that_says_what_bills_is_only_told_how_to_continue(self) -> None:
        at = position(Phase.STARTING)
        error = failed(at, HostError("It is lost.", may_bill=["n2"], run="r0"))
        assert isinstance(error, TpuctlError)
        assert (error.message, error.hint) == ("It is lost.", at.commands)
        assert error.facts == {"may_bill": ["n2"], "run": "r0"}

    def test_between_the_node_and_the_start_says_what_bills(self) -> None:
        at = position(Phase.CREATING)
        error = failed(at, DeclinedError("No."))
        assert isinstance(error, TpuctlError)
        assert error.message == "No. Run 'r1' is not started yet, and node 'n1' in z bills."
        assert error.hint == f"Continue: {AGAIN}\nDelete the node: tpuctl down n1"

    def test_that_is_a_bug_has_it_as_a_note(self) -> None:
        at = position(Phase.FETCHING)
        bug = failed(at, OSError(28, "No space left on device"))
        assert bug.__notes__ == [f"R{at.standing[1:]} {at.commands}"]


def test_a_node_of_which_nothing_is_known_may_bill() -> None:
    at = Position("r1", TYPED, Phase.CREATING, "n1")
    assert at.standing == "run 'r1' is not started yet, and node 'n1' may bill."
