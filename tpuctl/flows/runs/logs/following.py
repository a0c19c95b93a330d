"""Follows the logs of a run until it has ended; services that do not answer are waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain

from tpuctl import polling
from tpuctl.errors import BucketMissingError, DeadlineError, InterruptedByUser
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.decision import WorkerWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.logs.reader import Line, LogReader
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import QUIET_AFTER, RunState, quiet_of
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING
from tpuctl.polling import Backoff, Sleep
from tpuctl.runs import Verdict

INTERVAL = 1.0
"""Seconds between two looks."""
OUTAGE = Backoff(first=INTERVAL, longest=30.0, factor=2.0)
"""Pauses while a service does not answer."""
SETTLE_EVERY = 10
"""Looks after which the verdict is read, too: somebody else may have written one."""


def follow(
    run: StoredRun,
    witnesses: Witnesses,
    reader: LogReader,
    show: Callable[[Line], None],
    tail: int | None = None,
    sleep: Sleep = polling.sleep,
    show_unfinished: Callable[[Sequence[Line]], None] = lambda _: None,
) -> Verdict:
    """Show new lines each second until the run has ended, and return its verdict: see `new_lines`.

    On Ctrl-C raises InterruptedByUser with the command to resume; the run keeps running.
    """
    lines = new_lines(run, witnesses, reader, tail, sleep, show_unfinished)
    try:
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                verdict: Verdict = end.value
                return verdict
            show(line)
    except KeyboardInterrupt as error:
        raise interrupted(run) from error


def new_lines(
    run: StoredRun,
    witnesses: Witnesses,
    reader: LogReader,
    tail: int | None = None,
    sleep: Sleep = polling.sleep,
    show_unfinished: Callable[[Sequence[Line]], None] = lambda _: None,
    show_state: Callable[[RunState], None] = lambda _: None,
) -> Generator[Line, None, Verdict]:
    """Yield new lines each second until the run has ended, and return its verdict.

    Begins with the last `tail` lines, or with all. While every worker goes on, a look costs one listing.
    A service that does not answer is said once, and waited for. Raises BadObjectError where a record that
    decides cannot be read: no verdict can come any more. `show_unfinished` gets after each look the workers'
    last lines that have no end yet, and `show_state` what is known of the run.
    """
    follower = _Follower(run, witnesses, reader, tail, show_unfinished, show_state)
    while (verdict := (yield from follower.look())) is None:
        if not follower.goes_to_next_attempt():
            sleep(follower.pause)
    return verdict


def interrupted(run: StoredRun) -> InterruptedByUser:
    """Return the error of a command that followed a run and was interrupted."""
    return InterruptedByUser(
        f"Interrupted; run '{run.name}' keeps running.", hint=f"Resume with: tpuctl logs -f {run.name}"
    )


class _Follower:
    """One command that follows a run."""

    def __init__(
        self,
        run: StoredRun,
        witnesses: Witnesses,
        reader: LogReader,
        tail: int | None,
        show_unfinished: Callable[[Sequence[Line]], None],
        show_state: Callable[[RunState], None],
    ) -> None:
        self._run = run
        self._witnesses = witnesses
        self._reader = reader
        self._held = None if tail is None else deque[Line](maxlen=tail)
        """The last lines of the beginning until all of it is read: after an outage the rest is added."""
        self._show_unfinished = show_unfinished
        self._show_state = show_state
        self._trouble = ""
        self._next_quiet = QUIET_AFTER
        self._no_chip = ""
        self._looks = 0
        self._pauses = OUTAGE.pauses()
        self.pause = INTERVAL
        """Seconds until the next look."""
        self._is_followed = False
        """Whether another attempt has followed the reader's."""

    def look(self) -> Generator[Line, None, Verdict | None]:
        """Yield what is new, and return the verdict if there is one."""
        try:
            state = yield from self._look()
        except DeadlineError as error:  # a service that does not answer: the run may go on
            self._say("no answer", error.message)
            self.pause = next(self._pauses)
            return None
        except BucketMissingError:  # its hosts know how the run ends
            state = settle(self._run, self._witnesses)
            self.pause = next(self._pauses)
        else:
            self._pauses, self.pause = OUTAGE.pauses(), INTERVAL
        self._say_doubt(state)
        self._say_quiet(state)
        self._say_no_chip(state)
        if state.error:
            raise state.error
        return None if self._is_followed else state.verdict

    def goes_to_next_attempt(self) -> bool:
        """Read the next attempt from now on, if there is one, and return whether there is."""
        if not self._is_followed:
            return False
        later = [number for number in self._run.attempt_numbers() if number > self._reader.attempt.number]
        attempt = self._run.attempt(later[0])  # also of several: each has lines
        self._run.warn(f"Run '{self._run.name}' was started again: attempt {attempt.number}.")
        self._reader.go_to(attempt)
        self._is_followed = False
        return True

    def _look(self) -> Generator[Line, None, RunState]:
        words = self._reader.attempt.words_of(self._reader.look().statuses)
        state = self._state(words)
        self._is_followed = state.attempt > self._reader.attempt.number
        yield from self._with_held(self._lines(state, words))
        self._show_unfinished(self._reader.unfinished())
        self._show_state(state)
        return state

    def _with_held(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Return new lines; the first time only the last of them, once all are read."""
        if self._held is None:
            return lines
        self._held.extend(lines)
        held, self._held = self._held, None
        return iter(held)

    def _lines(self, state: RunState, words: Sequence[WorkerWord]) -> Iterator[Line]:
        if not (state.verdict or state.error or self._is_followed):
            return self._reader.lines()
        if self._reader.is_complete(words):
            return chain(self._reader.lines(), self._reader.rest())
        return self._reader.all_lines()  # lists after the verdict: no line can come any more

    def _state(self, words: Sequence[WorkerWord]) -> RunState:
        """Return what the workers say; asks nobody else while they go on."""
        is_due = self._looks % SETTLE_EVERY == 0 or self._trouble
        self._looks += 1
        if is_due or decision.needs_node(words) or decision.decide_by_workers(words):
            return settle(self._run, self._witnesses)
        return RunState(None, [word.status for word in words], quiet=quiet_of(words))

    def _say_doubt(self, state: RunState) -> None:
        if state.verdict or state.error:
            return
        if state.unanswered:
            self._say("unanswered", f"What the TPU is doing is unknown: {state.unanswered}")
        elif state.doubt:
            self._say("doubt", f"{state.doubt[0].upper()}{state.doubt[1:]}.")
        elif self._trouble:
            again = "The bucket answers" if self._trouble == "no answer" else "Every worker is heard of"
            self._say("", f"{again} again.")

    def _say_quiet(self, state: RunState) -> None:
        """Say that the run prints nothing: after ten minutes, after twenty, after forty."""
        quiet = state.quiet or 0.0
        if quiet < QUIET_AFTER:
            self._next_quiet = QUIET_AFTER
        elif quiet >= self._next_quiet and state.reason in (state.no_output, state.no_chip):
            self._run.warn(f"Run '{self._run.name}': {state.no_output}. Still following.")
            while self._next_quiet <= quiet:
                self._next_quiet *= 2

    def _say_no_chip(self, state: RunState) -> None:
        """Say once that the run may run on the CPU, and once that it may not do that any more."""
        if state.no_chip == self._no_chip or state.verdict or state.doubt or state.unanswered:
            return
        if state.no_chip:
            self._run.warn(f"Run '{self._run.name}': {state.no_chip} Still following.")
        elif any(status and status.state == RUNNING for status in state.statuses):
            self._run.warn(f"Run '{self._run.name}' may use TPU chips by now.")
        self._no_chip = state.no_chip

    def _say(self, trouble: str, text: str) -> None:
        """Say a trouble when it begins and when it is over, and not at each look."""
        if trouble != self._trouble:
            self._run.warn(f"{text} Still following." if trouble else text)
        self._trouble = trouble
