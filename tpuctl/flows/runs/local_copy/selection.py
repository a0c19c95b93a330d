"""Selects what of a run is fetched."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint
from tpuctl.flows.runs.checkpoints.listing import Listing

CHECKPOINTS, LOGS, TENSORBOARD, OUTPUTS = PARTS = ("checkpoints", "logs", "tensorboard", "outputs")
"""Parts of a run; its records are always fetched."""
RECORDS = "records"
_LOG = re.compile(r"attempts/[^/]+/(?:workers/[^/]+/)?log/.*", re.DOTALL)


@dataclass(frozen=True)
class Selection:
    """What is wanted of a run; all of what is committed unless it says otherwise."""

    only: Collection[str] = PARTS
    step: int | None = None
    """Checkpoints of this step alone."""
    latest: bool = False
    """Checkpoints of the newest step alone."""
    unfinished: bool = False
    """Also checkpoints that are not committed."""

    def has_part(self, name: str) -> bool:
        """Return whether an object is of a part that is wanted; its name is that below the run's folder."""
        return part_of(name) in (RECORDS, *self.only)

    def choose(self, listing: Listing, committed: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return the wanted ones of committed checkpoints; raises NotFoundError for a step without any."""
        if self.step is not None:
            chosen = [checkpoint for checkpoint in committed if checkpoint.step == self.step]
            if not chosen:
                raise _no_step(self.step, committed)
            return chosen
        if not self.latest or not committed:
            return list(committed)
        newest = max(committed, key=lambda checkpoint: listing.generation(checkpoint.files))
        return [
            checkpoint
            for checkpoint in committed
            if checkpoint == newest or (newest.step is not None and checkpoint.step == newest.step)
        ]


def part_of(name: str) -> str:
    """Return the part of a run that an object below its folder is of, RECORDS for any other."""
    first = name.partition("/")[0]
    if _LOG.fullmatch(name):
        return LOGS
    return first if first in (CHECKPOINTS, TENSORBOARD, OUTPUTS) else RECORDS


def _no_step(step: int, committed: Sequence[Checkpoint]) -> NotFoundError:
    steps = sorted({checkpoint.step for checkpoint in committed if checkpoint.step is not None})
    listed = ", ".join(map(str, steps[-10:]))
    hint = f"The newest are of step {listed}." if steps else "Its checkpoints have no number in their names."
    return NotFoundError(
        f"There is no committed checkpoint of step {step}.",
        hint=hint if committed else "The run has no committed checkpoint.",
        step=step,
    )
