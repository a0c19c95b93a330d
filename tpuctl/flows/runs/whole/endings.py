"""Says of a whole run that stops in the middle what goes on, what bills, and which command does what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    InterruptedByUser,
    StockoutError,
    TpuctlError,
    add_note,
    joined_hints,
)
from tpuctl.shells import again

EARLIER = "See what an earlier command has made, which bills: tpuctl ls"


class Phase(StrEnum):
    """What a command is doing; the value says how it stands with the run meanwhile."""

    PLANNING = "is not started"
    CREATING = "is not started yet"
    STARTING = "may have started, and goes on then"
    RUNNING = "goes on"
    RESTARTING = "is to be started again"
    FETCHING = "has ended, and its files are not all here"
    DELETING = "has ended, and its files are here"


@dataclass
class Position:
    """Where one command is on its way."""

    run: str
    typed: tuple[str, ...]
    """The words of the command that continues."""
    phase: Phase = Phase.PLANNING
    node: str = ""
    """The node that the command has requested or uses; empty without one."""
    zone: str = ""
    """Of the node, or those in one of which it may be."""
    has_node: bool = False
    """Whether the node exists for sure."""
    is_kept: bool = False
    """Whether Terraform keeps the node, and nobody is to delete it."""
    is_named: bool = False
    """Whether an earlier command may have begun the run, since the user has named it."""

    @property
    def again(self) -> str:
        """The command that continues."""
        return again(self.typed)

    @property
    def standing(self) -> str:
        """What goes on and what bills, as a sentence."""
        node = ""
        if self.node:
            where = f" in {self.zone}" if self.zone else ""
            node = f", and node '{self.node}'{where} {'bills' if self.has_node else 'may bill'}"
        return f"run '{self.run}' {self.phase}{node}."

    @property
    def may_bill(self) -> list[str]:
        """The node, as errors name it for programs."""
        return [f"{self.node} in {self.zone}" if self.zone else self.node] if self.node else []

    @property
    def commands(self) -> str:
        """The commands to continue, to stop the run, and to delete the node."""
        runs = self.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
        return joined_hints(
            f"Continue: {self.again}",
            f"Stop the run: tpuctl cancel {self.run}" if runs else "",
            f"Delete the node: tpuctl down {self.node}" if self.node and not self.is_kept else "",
        )


def interrupted(position: Position, interrupt: BaseException) -> InterruptedByUser:
    """Return the error of Ctrl-C; where a node may be is in the error of the creation that it interrupted."""
    if position.phase is Phase.PLANNING and position.is_named:
        return InterruptedByUser(
            f"Interrupted; this command has started nothing. What an earlier one has begun for run "
            f"'{position.run}' goes on, and may bill.",
            hint=joined_hints(EARLIER, f"Continue: {position.again}"),
            run=position.run,
        )
    if position.phase is Phase.PLANNING:
        return InterruptedByUser("Interrupted; nothing was started.")
    places = interrupt.facts.get("may_bill") if isinstance(interrupt, InterruptedByUser) else None
    if isinstance(places, list) and not position.zone:
        before = f"{position.node} in "
        position.zone = " or ".join(place.removeprefix(before) for place in places if before in place)
    facts = {"may_bill": position.may_bill} if position.node else {}
    return InterruptedByUser(
        f"Interrupted; {position.standing}", hint=position.commands, run=position.run, **facts
    )


def failed(position: Position, error: Exception) -> Exception:
    """Return an error with what goes on and what bills, where it does not say so itself."""
    is_up_at_it = position.phase is Phase.CREATING and not position.has_node  # then `up` has said what bills
    if position.phase is Phase.PLANNING:
        if position.is_named and isinstance(error, (ConfigError, DeadlineError)):
            error.hint = joined_hints(error.hint, EARLIER)
        return error
    standing = position.standing
    sentence = f"{standing[0].upper()}{standing[1:]}"
    if not isinstance(error, TpuctlError):
        if not is_up_at_it:
            add_note(error, f"{sentence} {position.commands}")
        return error
    error.facts.setdefault("run", position.run)
    if is_up_at_it:
        if "may_bill" in error.facts:
            return error
        if isinstance(error, StockoutError):
            error.hint = joined_hints(
                f"Try again: {position.again}",
                f"Try every zone: {again(position.typed, {'--zone': 'any'})}",
                f"Keep trying: {again(position.typed, {'--wait-capacity': '6h'})}",
            )
        else:
            error.hint = joined_hints(error.hint, f"Try again: {position.again}")
        return error
    if "may_bill" not in error.facts:
        error.message = f"{error.message} {sentence}"
        if position.node:
            error.facts["may_bill"] = position.may_bill
    error.hint = joined_hints(error.hint, position.commands)
    return error
