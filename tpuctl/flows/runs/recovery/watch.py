"""Watches runs: repeats the step of each until it has ended for good; a run in trouble ends no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tpuctl import polling
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    InterruptedByUser,
    NotFoundError,
    TpuctlError,
    UsageError,
    in_one_line,
    joined_hints,
)
from tpuctl.flows.nodes.lookup import Allocation, take_inventory
from tpuctl.flows.progress import Outage
from tpuctl.flows.runs.lookup import listed_runs
from tpuctl.flows.runs.recovery.lease import BUSY, ENDED_FOR_GOOD, GOES_ON, WAITS, WatchEvent
from tpuctl.flows.runs.recovery.machine import delete_all, machine_name
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.parallel import Result, fanout
from tpuctl.polling import Backoff, Sleep

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

INTERVAL = 10.0
"""Seconds between two looks."""
QUIET_INTERVAL = 30.0
"""Seconds between two looks at one of more than WIDTH runs, if it goes on."""
PAUSES = Backoff(first=30.0, longest=300.0)
"""Seconds after a step that found no capacity, or no answer."""
SWEEP_EVERY = 30
"""Looks after which machines are looked for whose runs have ended while nobody watched."""
WIDTH = 8
FINAL = (UsageError, ConfigError)
"""Errors of a run that another look would only repeat."""
NAMED_FINAL = (*FINAL, NotFoundError)
"""Errors that end the watching of a run that was named; one of all runs is listed again at the next look."""


@dataclass
class _Watched:
    """A run that is watched."""

    run: StoredRun
    pauses: Iterator[float] = field(default_factory=lambda: PAUSES.pauses())
    due: float = 0.0
    """The monotonic time before which no step is taken."""
    shown: str = ""
    """The last event or error that was shown."""


class Watcher:
    """One command that watches runs."""

    def __init__(self, tools: Tools, sleep: Sleep = polling.sleep) -> None:
        self._tools = tools
        self._sleep = sleep
        self._runs: dict[str, _Watched] = {}
        self._others: set[str] = set()
        """Runs that are not watched: of other owners, or without restarts."""
        self._said: set[str] = set()
        """What sweeps have reported."""

    def events(self, runs: Sequence[StoredRun], *, once: bool = False) -> Generator[WatchEvent, None, None]:
        """Take steps until each run has ended for good, or one step each, and yield each event that is new.

        Raises what keeps a run from going on, once all others have ended; of several runs the first error.
        Each is reported as soon as it is known.
        """
        self._runs = {run.name: _Watched(run) for run in runs}
        errors: list[TpuctlError] = []
        while self._runs:
            new = yield from self._look(NAMED_FINAL, is_last=once)
            is_over = once or not self._runs
            self._tell(new[1:] if is_over and not errors else new)
            errors += new
            if is_over:
                break
            self._sleep(INTERVAL)
        if errors:
            raise errors[0]

    def all_events(self, owner: str, *, once: bool = False) -> Generator[WatchEvent, None, None]:
        """Take steps of every run of an owner that may be started again; yield each event that is new.

        Machines of runs that have ended are deleted, also of those that ended while nobody watched. A service
        that does not answer is waited for.
        """
        looks, report = 0, self._tools.report
        of_list, of_sweep = Outage(report, "watching"), Outage(report, "watching")
        while True:
            _outlast(of_list, lambda: self._find(owner), is_last=once)
            errors = yield from self._look((NotFoundError,), is_last=once)
            if looks % SWEEP_EVERY == 0:
                _outlast(of_sweep, lambda: self.sweep(owner), is_last=once)
            looks += 1
            if once:
                self._tell(errors[1:])
                if errors:
                    raise errors[0]
                return
            self._sleep(INTERVAL)

    def _find(self, owner: str) -> None:
        names = _open_names(self._tools.bucket, owner, self._runs, self._others)
        self._runs = {name: self._runs.get(name) or self._watched(name) for name in names}

    def _watched(self, name: str) -> _Watched:
        return _Watched(StoredRun(self._tools.bucket, name))

    def _tell(self, errors: Sequence[TpuctlError]) -> None:
        """Report errors beside the one that ends the command, or long before it does."""
        for error in errors:
            self._tools.report(in_one_line(error))

    def _look(
        self, final: tuple[type[TpuctlError], ...], *, is_last: bool
    ) -> Generator[WatchEvent, None, list[TpuctlError]]:
        """Take a step of each run that is due; return the errors that end the watching of their run."""
        now, errors = time.monotonic(), list[TpuctlError]()
        due = [watched for watched in self._runs.values() if watched.due <= now]
        for result in fanout(self._step, due, width=WIDTH):
            error = yield from self._settle(result, now, None if is_last else final)
            if error:
                errors.append(error)
        return errors

    def _step(self, watched: _Watched) -> WatchEvent:
        name, report = watched.run.name, self._tools.report
        return step(watched.run, replace(self._tools, report=lambda text: report(f"{name}: {text}")))

    def _settle(
        self, result: Result[_Watched, WatchEvent], now: float, final: tuple[type[TpuctlError], ...] | None
    ) -> Generator[WatchEvent, None, TpuctlError | None]:
        """Yield what a step has brought if it is new, and say when the next one is due.

        Returns an error of a class that is `final`; with None, of the last look, any.
        """
        watched, event, error = result.item, result.value, result.error
        name = watched.run.name
        if isinstance(error, InterruptedByUser):
            raise interrupted([watched.run], error)
        if error:
            if final is None or isinstance(error, final):
                self._runs.pop(name, None)
                return error
            event = WatchEvent(name, 0, WAITS, error.message)
        assert event is not None
        is_news = event.action != GOES_ON or watched.shown or final is None
        if is_news and event.line != watched.shown:
            yield event
        watched.shown = event.line
        if event.action == ENDED_FOR_GOOD:
            self._runs.pop(name, None)
        elif event.action == WAITS:
            watched.due = now + next(watched.pauses)
        elif event.action != BUSY:
            watched.pauses = PAUSES.pauses()
            if event.action == GOES_ON and len(self._runs) > WIDTH:
                watched.due = now + QUIET_INTERVAL
        return None

    def sweep(self, owner: str) -> None:
        """Delete every machine that was made for a run which has ended for good."""
        inventory = take_inventory(self._tools.provider)
        made: dict[str, list[Allocation]] = {}
        for item in inventory.allocations:
            made.setdefault(item.restarted_run(self._tools.bucket.name), []).append(item)
        made.pop("", None)
        for name, items in sorted(made.items()):
            try:
                run = StoredRun(self._tools.bucket, name)
                verdict = run.verdict()
                machine = run.record.machine
                if machine and machine.owner == owner and verdict and not verdict.restarts:
                    delete_all(replace(self._tools, report=self._say_once), name, machine)
            except InterruptedByUser:
                raise
            except TpuctlError as error:
                self._say_once(f"{name}: {error.message}")
                for item in items:
                    if isinstance(error, NotFoundError) and item.is_owned_by(owner):
                        self._say_once(
                            f"{item.name} in {item.zone} was made for it, and bills: {item.deletion}"
                        )

    def _say_once(self, text: str) -> None:
        """Report what each sweep finds again."""
        if text not in self._said:
            self._said.add(text)
            self._tools.report(text)


def _outlast(outage: Outage, act: Callable[[], None], *, is_last: bool) -> None:
    """Do what a later look repeats, unless this is the last."""
    try:
        act()
    except DeadlineError as error:
        if is_last:
            raise
        outage.note(error)
    else:
        outage.end()


def open_runs(bucket: Bucket, owner: str) -> list[StoredRun]:
    """Return the runs of an owner that go on or are to be started again, and have a policy of restarts."""
    return [StoredRun(bucket, name) for name in _open_names(bucket, owner, (), set())]


def to_be_restarted(bucket: Bucket, owner: str) -> list[str]:
    """Return the names of the runs of an owner that have ended, and are to be started again."""
    ended = ((run.name, run.verdict()) for run in open_runs(bucket, owner))
    return [name for name, verdict in ended if verdict and verdict.restarts]


def _open_names(bucket: Bucket, owner: str, known: Collection[str], others: set[str]) -> list[str]:
    """Return the names of such runs; adds the rest to `others`. Of those in neither the records are read.

    One whose record cannot be read now is returned.
    """
    listed = [item.name for item in listed_runs(bucket) if item.is_open]
    unknown = [name for name in listed if name not in known and name not in others]
    for result in fanout(lambda name: _is_own(bucket, name, owner), unknown, width=WIDTH):
        if result.value is False:
            others.add(result.item)
    return [name for name in listed if name not in others]


def _is_own(bucket: Bucket, name: str, owner: str) -> bool:
    try:
        return is_own(StoredRun(bucket, name), owner)
    except (BadObjectError, NotFoundError):
        return False


def is_own(run: StoredRun, owner: str) -> bool:
    """Return whether an owner's run may be started again."""
    machine = run.record.machine
    return run.restarts and machine is not None and machine.owner == owner


def interrupted(runs: Sequence[StoredRun], interrupt: BaseException) -> InterruptedByUser:
    """Return the error of a watcher that was interrupted while it started runs again.

    Where is in the error of the creation that was interrupted.
    """
    run, facts = runs[0], interrupt.facts if isinstance(interrupt, InterruptedByUser) else {}
    next_attempt = max(run.attempt_numbers(), default=0) + 1
    places = facts.get("may_bill") or [machine_name(run.name, next_attempt)]
    assert isinstance(places, list)
    return InterruptedByUser(
        f"Interrupted while run '{run.name}' was being started again; its machine may bill already: "
        f"{' or '.join(places)}.",
        hint=joined_hints(
            f"Resume: tpuctl watch {run.name}", f"End it, and delete that: tpuctl cancel {run.name}"
        ),
        may_bill=places,
    )
