"""Runs a user's command on workers to its end, and says which worker had the worst one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from tpuctl import polling
from tpuctl.errors import DeadlineError, InterruptedByUser, TpuctlError
from tpuctl.flows.remote.execution import Ended, Execution, Output
from tpuctl.flows.remote.targets import Hosts
from tpuctl.text.worker_numbers import named, ranges

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


@dataclass(frozen=True)
class Results:
    """How the command ended on each worker."""

    node: str
    ends: Sequence[Ended]
    """In the order of the workers."""

    @property
    def failed(self) -> list[int]:
        """The workers with an error or an exit code other than 0."""
        return [end.worker for end in self.ends if end.error or end.exit_code]

    @property
    def worst(self) -> Ended:
        """The end that decides the exit code: a lost host before the highest exit code."""
        return max(self.ends, key=lambda end: (end.error is not None, end.exit_code or 0))

    def error(self) -> TpuctlError | None:
        """Return the error of a worker that could not run the command to its end, or None."""
        error = self.worst.error
        lost = [end.worker for end in self.ends if end.error]
        if error and len(lost) > 1:
            error.hint = f"{len(lost)} of {len(self.ends)} workers failed so: {ranges(lost)}. {error.hint}"
        if error:
            error.facts["workers"] = lost
        return error


def run_command(
    ssh: Ssh, hosts: Hosts, words: Sequence[str], take: Callable[[Output], None], timeout: float | None
) -> Results:
    """Run a command on every worker at once; `take` gets the output, a piece at a time.

    Raises InterruptedByUser for Ctrl-C and DeadlineError after `timeout` seconds, both after the command was
    ended on the hosts.
    """
    ends: dict[int, Ended] = {}
    node = hosts.node
    execution = Execution(
        lambda worker: ssh.connect(node, worker, hosts.host_key(worker)), hosts.workers, words
    )
    late: list[int] = []
    try:
        with execution:
            for event in execution.events(time.monotonic() + (timeout or inf), polling.check):
                if isinstance(event, Ended):
                    ends[event.worker] = event
                else:
                    take(event)
            late = sorted(execution.running)
    except KeyboardInterrupt:
        raise InterruptedByUser(f"Interrupted: {_ended(execution.running)}", hint=_hint(execution)) from None
    if late:
        raise DeadlineError(
            f"The command did not end in time on {named(late)} of '{node.name}': {_ended(execution.running)}",
            hint=_hint(execution) or "Give it longer: --timeout",
            workers=late,
        )
    return Results(node.name, [ends[worker] for worker in hosts.workers])


def _ended(running: set[int]) -> str:
    if not running:
        return "it was ended on the hosts."
    return f"{named(running)} did not confirm that it ended there."


def _hint(execution: Execution) -> str:
    return "The hosts may hang; the command ends with its connection." if execution.running else ""
