"""Finds the nodes that runs use."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import RUNS, STATUSES, NodePaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.evidence.witnesses import Witnesses, live_signs
from tpuctl.flows.runs.lookup import WIDTH, outcomes_in, started_on
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.keeper import records
from tpuctl.nodes import Node
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


class Usage:
    """Says which nodes the runs of a bucket use."""

    def __init__(
        self, bucket: Bucket, witnesses: Witnesses, now: datetime, age: timedelta, warn: Report
    ) -> None:
        self._bucket = bucket
        self._witnesses = witnesses
        self._warn = warn
        self._since = now - age

    def used(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Return the uids of nodes on which a run has not ended, or ended less than the age ago.

        A node whose runs are recorded in another bucket counts as used, and one on which a run works that no
        record tells of. Raises StateError for a run of a node that cannot be read: nobody knows whether
        it has ended.
        """
        listed = list(nodes)
        if listed:
            self._listing  # noqa: B018  read once, before several threads ask for it
        answers = values(fanout(self._is_used, listed, width=WIDTH))
        return frozenset(node.id.uid for node, is_used in zip(listed, answers, strict=True) if is_used)

    def _is_used(self, node: Node) -> bool:
        """Whether one of its runs holds a node; the newest are looked at first."""
        if not node.is_recorded_in(self._bucket.name):
            other = node.metadata[records.BUCKET]
            self._warn(
                f"{node.name} is left alone: its runs are recorded in gs://{other}. "
                f"To include it: --bucket {shlex.quote(other)}."
            )
            return True
        names = dict.fromkeys(item.run for item in started_on(self._bucket, NodePaths.of(node.id)))
        settled, working = self._listing
        unsettled = (name for name in names if name not in settled)
        if any(self._holds(StoredRun(self._bucket, name, self._warn), node) for name in unsettled):
            return True
        seen = working.get(node.id.uid)
        unlisted = [seen] if seen else self._witnesses.beside(node.id)
        if unlisted:
            self._warn(
                f"{node.name} is left alone: run '{unlisted[0]}' works on it. Its records were deleted from"
                f" gs://{self._bucket.name}, or are in another bucket."
            )
        return bool(unlisted)

    @cached_property
    def _listing(self) -> tuple[frozenset[str], dict[str, str]]:
        """What one listing tells of all runs; one that is started after it is among none of them.

        The runs that have ended for good, long enough ago, and, by the uid of a node, a run that works there
        as its statuses say, whatever records there are.
        """
        objects = self._bucket.objects(RUNS, glob=f"{RUNS}*/{{verdict.json,{STATUSES}}}")
        signs = live_signs(self._bucket, objects)
        working = {uid: sign.run for sign in signs for uid in sign.tpu_uids}
        return frozenset(outcomes_in(objects, self._bucket.now(), self._since)), working

    def _holds(self, run: StoredRun, node: Node) -> bool:
        try:
            if node.id.uid not in run.node_uids():
                return False  # it goes on elsewhere
            state = settle(run, self._witnesses)
        except NotFoundError:
            return False  # it was never started
        except BadObjectError as error:
            raise _unknown(run, error) from error
        if state.error:
            raise _unknown(run, state.error) from state.error
        return not (state.verdict and clock.parse(state.verdict.decided) <= self._since)


def _unknown(run: StoredRun, error: BadObjectError) -> StateError:
    return StateError(
        f"Run '{run.name}' cannot be read, so nobody knows whether its TPU is in use: {error.message}",
        hint="Delete its folder from the bucket, or leave --without-run away.",
    )
