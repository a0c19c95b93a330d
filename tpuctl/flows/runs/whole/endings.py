"""Says of a whole run that stops in the middle what goes on, what bills, and which command does what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tpuctl.errors import InterruptedByUser, StockoutError, TpuctlError, joined_hints


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
    again: str
    """The command that continues."""
    phase: Phase = Phase.PLANNING
    node: str = ""
    """The node that the command has requested or uses; empty without one."""
    has_node: bool = False
    """Whether the node exists for sure."""

    is_kept: bool = False
    """Whether Terraform keeps the node, and nobody is to delete it."""

    @property
    def standing(self) -> str:
        """What goes on and what bills, as a sentence."""
        node = ""
        if self.node:
            node = f", and node '{self.node}' {'bills' if self.has_node else 'may bill'}"
        return f"run '{self.run}' {self.phase}{node}."

    @property
    def commands(self) -> str:
        """The commands to continue, to stop the run, and to delete the node."""
        texts = [f"Continue: {self.again}."]
        if self.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING):
            texts.append(f"Stop the run: tpuctl cancel {self.run}.")
        if self.node and not self.is_kept:
            texts.append(f"Delete the node: tpuctl down {self.node}")
        return " ".join(texts)


def interrupted(position: Position) -> InterruptedByUser:
    """Return the error of Ctrl-C."""
    if position.phase is Phase.PLANNING:
        return InterruptedByUser("Interrupted; nothing was started.")
    facts = {"may_bill": [position.node]} if position.node else {}
    return InterruptedByUser(
        f"Interrupted; {position.standing}", hint=position.commands, run=position.run, **facts
    )


def failed(position: Position, error: TpuctlError) -> TpuctlError:
    """Return an error with what goes on and what bills, where it does not say so itself."""
    if position.phase is Phase.PLANNING:
        return error
    error.facts.setdefault("run", position.run)
    if position.phase is Phase.CREATING:  # `up` has said what bills
        if isinstance(error, StockoutError):
            error.hint = f"Try again: {position.again}. More zones: --zone any. Longer: --wait-capacity 6h"
        elif "may_bill" not in error.facts:
            error.hint = joined_hints(error.hint, f"Try again: {position.again}")
        return error
    if "may_bill" not in error.facts:
        standing = position.standing
        error.message = f"{error.message} {standing[0].upper()}{standing[1:]}"
        if position.node:
            error.facts["may_bill"] = [position.node]
    error.hint = joined_hints(error.hint, position.commands)
    return error
