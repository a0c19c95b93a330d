"""Shows a run until it ends, in a notebook or as lines."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.client.context import Context
from tpuctl.display.following import FollowScreen, RunView, concise
from tpuctl.errors import InterruptedByUser
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.logs.following import new_lines
from tpuctl.flows.runs.logs.reader import Line, LogReader, hides_startup_lines, is_startup_line
from tpuctl.flows.runs.metrics import METRICS, STEP_TIME, LatestMetrics, known_metrics
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Stopped
from tpuctl.runs import SUCCEEDED, Verdict

METRICS_EVERY = 5
"""Looks, a second apart, after which metrics are read again."""


class Follower:
    """Follows one run."""

    def __init__(self, context: Context, run: StoredRun, *, live: bool | None) -> None:
        hides = hides_startup_lines(run.record)
        self._context = context
        self._run = run
        self._reader = LogReader(run.last_readable_attempt(), None, is_startup_line if hides else None)
        self._screen = FollowScreen(labels=len(self._reader.workers) > 1, live=live)
        self._metrics = LatestMetrics()
        self._looks = 0

    def to_end(self) -> Verdict:
        """Show the run until it ends, and return how it ended.

        On an interrupt raises InterruptedByUser with the call to come back; the run goes on.
        """
        lines = new_lines(
            self._run,
            self._context.witnesses,
            self._reader,
            show_unfinished=self._show_unfinished,
            show_state=self._show_state,
        )
        try:
            while True:
                try:
                    line = next(lines)
                except StopIteration as end:
                    verdict: Verdict = end.value
                    return verdict
                self._screen.line(line.worker, line.text)
        except Stopped:
            raise
        except KeyboardInterrupt:
            name = self._run.name
            error = InterruptedByUser(
                f"Interrupted; run '{name}' keeps running.", hint=f"Come back: client.run('{name}').follow()"
            )
            raise concise(error) from None

    def _show_unfinished(self, lines: Sequence[Line]) -> None:
        self._screen.unfinished((line.worker, line.text) for line in lines)

    def _show_state(self, state: RunState) -> None:
        if state.verdict or self._looks % METRICS_EVERY == 0:
            self._metrics = known_metrics(self._run.bucket, self._run.name)
        self._looks += 1
        self._screen.update(RunView(self._run.name, state.label, self._content(state), _hint(state.verdict)))

    def _content(self, state: RunState) -> dict[str, object]:
        attempt, metrics = self._reader.attempt, self._metrics.values
        tpu = attempt.record.tpu
        return {
            "node": f"{tpu.name} ({tpu.size}, {tpu.zone})",
            "attempt": attempt.number if attempt.number > 1 else "",
            "step": max((metric.step for metric in metrics.values()), default=""),
            **{
                name: f"{metrics[name].short} ms" if name == STEP_TIME else metrics[name].short
                for name in METRICS
                if name in metrics
            },
            "reason": "" if state.label == SUCCEEDED else state.reason,
        }


def _hint(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    error = outcome.error_of(verdict)
    return error.hint if error else f"client.run('{verdict.run}').pull()"
