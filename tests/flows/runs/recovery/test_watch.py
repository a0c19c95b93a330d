"""How often a watcher looks: each run every ten seconds, of many runs those that go on every thirty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests.crashes.world import CrashWorld
from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import CREATED
from tests.flows.runs.recovery.site import Site
from tpuctl import clock, runs
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    InterruptedByUser,
    NotFoundError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.nodes.lookup import Inventory
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.lease import BUSY, ENDED_FOR_GOOD, GOES_ON, RESTARTED, WAITS, WatchEvent
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.recovery.watch import Watcher, open_runs
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like
from tpuctl.host.worker.records import RUNNING, WorkerStatus, encode
from tpuctl.nodes import RESTART_LABEL
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_MACHINE, Run, Verdict

NOTHING = Inventory(())
LOOKS = 7
"""Of a minute, its first and last moment included."""


class Enough(Exception):
    """A minute is over."""


@pytest.fixture
def world(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashWorld]:
    """A world of its own, without a node, where two runs are many."""
    monkeypatch.setattr(watch, "WIDTH", 1)  # also one thread, so that requests come in one order
    with CrashWorld(tmp_path) as built:
        yield built


def listings(site: Site, names: list[str]) -> int:
    """Watch all runs for a minute in which their workers write; return how often the bucket was listed."""
    began = site.world.time

    def beat() -> None:
        for name in names:
            status = WorkerStatus(0, 1, "7", RUNNING, clock.iso(site.world.time))
            paths = StoredRun(site.bucket, name).paths  # type: ignore[arg-type]
            site.bucket.put(paths.status(1, 0), encode(status))

    def sleep(seconds: float) -> None:
        if (site.world.time - began).total_seconds() >= 60:
            raise Enough
        site.world.pass_time(seconds)
        beat()

    shown: list[WatchEvent] = []
    beat()
    site.world.requests = []
    with pytest.raises(Enough):
        shown.extend(Watcher(site.tools(), sleep).all_events(site.owner))
    assert shown == []
    return site.world.requests.count("bucket.list")


@pytest.mark.parametrize(("count", "looks"), [(1, LOOKS), (2, 3), (5, 3)])
def test_of_more_than_a_few_runs_each_that_goes_on_is_looked_at_every_thirty_seconds(
    world: CrashWorld, count: int, looks: int
) -> None:
    site = Site(world)
    names = ["r1", *(f"other-{number}" for number in range(count - 1))]
    for name in names[1:]:
        site.neighbour(name, "n1")
    for_runs, for_attempts, for_statuses = LOOKS, count, looks * count
    assert listings(site, names) == for_runs + for_attempts + for_statuses


def test_runs_among_many_that_are_preempted_are_started_again(world: CrashWorld) -> None:
    site = Site(world)
    site.neighbour("other", "n1")
    site.preempt()
    restarted: list[str] = []

    def sleep(seconds: float) -> None:
        if len(restarted) == 2:
            raise Enough
        site.world.pass_time(seconds)

    events = Watcher(site.tools(), sleep).all_events(site.owner)
    with pytest.raises(Enough):
        restarted.extend(event.run for event in events if event.action == RESTARTED)
    assert sorted(restarted) == ["other", "r1"]


class Time:
    """The time that a watcher reads, which its pauses move on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds == watch.INTERVAL
        self.now += seconds


Played = WatchEvent | TpuctlError


class PlayedWatch:
    """A watcher of runs whose steps are known beforehand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, provider: MemoryProvider | None = None) -> None:
        self.memory = MemoryBucket()
        self.time = Time()
        self.reports: list[str] = []
        self.shown: list[WatchEvent] = []
        self.steps: dict[str, list[Played]] = {}
        self.times: dict[str, list[float]] = {}
        """When a step of each run was taken, in seconds since the first look."""
        monkeypatch.setattr(watch, "time", self.time)
        monkeypatch.setattr(watch, "WIDTH", 1)
        monkeypatch.setattr(watch, "step", self._step)
        nothing: Any = None
        tools = Tools(
            cast("Any", self.memory), "b", cast("Any", provider or MemoryProvider()), nothing, nothing,
            nothing, "a", self.reports.append,
        )  # fmt: skip
        self.watcher = Watcher(tools, self.time.sleep)

    def _step(self, run: StoredRun, tools: Tools) -> WatchEvent:
        self.times.setdefault(run.name, []).append(self.time.now - 1000.0)
        tools.report("a step")
        taken = self.steps[run.name].pop(0)
        if isinstance(taken, WatchEvent):
            return taken
        raise taken

    def run(self, name: str) -> StoredRun:
        return StoredRun(cast("Any", self.memory), name)

    def watch(self, *, once: bool = False, **steps: list[Played]) -> list[WatchEvent]:
        """Watch runs by their names, and return what was shown."""
        self.steps = steps
        for event in self.watcher.events([self.run(name) for name in steps], once=once):
            self.shown.append(event)
        return self.shown

    def watch_all(self, *, once: bool = False) -> None:
        """Watch all runs of ada."""
        for event in self.watcher.all_events("ada", once=once):
            self.shown.append(event)

    def submit(self, name: str, owner: str = "ada", outcome: str = "", *, restarts: bool = False) -> None:
        """Write a run that may be started again, and its verdict."""
        machine = machine_like(node(), RestartRequest(), "jax", owner)
        run = self.run(name)
        run.create(
            Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-8", (), {},
                restarts=Restarts(after_loss=None), machine=machine)
        )  # fmt: skip
        if outcome:
            run.end(Verdict(name, outcome, 1, CREATED, "because", basis=BY_MACHINE, restarts=restarts))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedWatch:
    return PlayedWatch(monkeypatch)


def event(action: str, detail: str = "because", run: str = "r1") -> WatchEvent:
    return WatchEvent(run, 1, action, detail)


class TestEvents:
    def test_a_line_names_the_attempt_where_it_is_known(self) -> None:
        assert event(WAITS).line == "r1: attempt 1 waits: because"
        assert WatchEvent("r1", 0, WAITS, "No answer.").line == "r1: waits: No answer."

    def test_of_a_run_are_shown_until_it_has_ended_but_not_that_it_goes_on_from_the_beginning(
        self, played: PlayedWatch
    ) -> None:
        again = event(GOES_ON, "again")
        steps: list[Played] = [
            event(GOES_ON), event(GOES_ON), event(RESTARTED), again, again, event(ENDED_FOR_GOOD)
        ]  # fmt: skip
        assert played.watch(r1=list(steps)) == [steps[2], steps[3], steps[5]]
        assert played.times["r1"] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        assert set(played.reports) == {"r1: a step"}

    def test_of_one_look_say_that_it_goes_on(self, played: PlayedWatch) -> None:
        assert played.watch(once=True, r1=[event(GOES_ON)]) == [event(GOES_ON)]
        assert played.time.now == 1000.0

    def test_that_it_waits_are_shown_once_and_come_more_and_more_rarely(self, played: PlayedWatch) -> None:
        waits: list[Played] = [event(WAITS)] * 4
        assert played.watch(r1=[*waits, event(ENDED_FOR_GOOD)]) == [event(WAITS), event(ENDED_FOR_GOOD)]
        pauses = [after - before for before, after in pairwise(played.times["r1"])]
        assert pauses == sorted(pauses)
        assert pauses[0] < pauses[-1]
        assert all(pause >= wanted for pause, wanted in zip(pauses, watch.PAUSES.pauses(), strict=False))

    def test_that_another_watcher_starts_it_come_at_each_look(self, played: PlayedWatch) -> None:
        played.watch(r1=[event(BUSY), event(BUSY), event(ENDED_FOR_GOOD)])
        assert played.times["r1"] == [0.0, 10.0, 20.0]

    def test_of_a_service_that_does_not_answer_are_those_of_a_run_that_waits(
        self, played: PlayedWatch
    ) -> None:
        shown = played.watch(r1=[DeadlineError("No answer."), event(ENDED_FOR_GOOD)])
        assert shown == [WatchEvent("r1", 0, WAITS, "No answer."), event(ENDED_FOR_GOOD)]

    @pytest.mark.parametrize(
        "error", [UsageError("A value is missing."), ConfigError("No key."), NotFoundError("No run.")]
    )
    def test_of_other_runs_are_shown_before_what_ends_the_watching_of_one(
        self, played: PlayedWatch, error: TpuctlError
    ) -> None:
        end = event(ENDED_FOR_GOOD, run="r2")
        with pytest.raises(type(error)) as caught:
            played.watch(r1=[error], r2=[event(BUSY, run="r2"), end])
        assert caught.value is error
        assert played.shown == [event(BUSY, run="r2"), end]
        assert played.reports == ["r1: a step", "r2: a step", error.message, "r2: a step"]

    def test_of_one_look_name_each_run_in_trouble(self, played: PlayedWatch) -> None:
        errors = [DeadlineError("No answer about r1."), UsageError("r2 lacks a value.", hint="Give it.")]
        with pytest.raises(DeadlineError, match="No answer about r1"):
            played.watch(once=True, r1=[errors[0]], r2=[errors[1]])
        assert played.reports == ["r1: a step", "r2: a step", "r2 lacks a value. Give it."]

    def test_a_single_error_is_raised_and_not_reported_besides(self, played: PlayedWatch) -> None:
        with pytest.raises(UsageError, match="A value is missing"):
            played.watch(r1=[UsageError("A value is missing.")])
        assert played.reports == ["r1: a step"]

    def test_of_one_look_end_with_any_error(self, played: PlayedWatch) -> None:
        with pytest.raises(DeadlineError, match="No answer"):
            played.watch(once=True, r1=[DeadlineError("No answer.")], r2=[event(RESTARTED, run="r2")])
        assert played.shown == [event(RESTARTED, run="r2")]

    def test_of_many_runs_those_that_go_on_are_looked_at_more_rarely(self, played: PlayedWatch) -> None:
        ends = {name: event(ENDED_FOR_GOOD, run=name) for name in ("r1", "r2")}
        played.watch(
            r1=[event(GOES_ON), event(GOES_ON), ends["r1"]],
            r2=[event(GOES_ON, run="r2"), event(GOES_ON, run="r2"), ends["r2"]],
        )
        assert played.times["r1"] == [0.0, watch.QUIET_INTERVAL, 2 * watch.QUIET_INTERVAL]

    def test_that_ctrl_c_interrupts_say_what_may_bill(self, played: PlayedWatch) -> None:
        with pytest.raises(InterruptedByUser) as caught:
            played.watch(r1=[InterruptedByUser("Interrupted.")])
        assert caught.value.message == (
            "Interrupted while run 'r1' was being started again; its machine may bill already: r1-1."
        )
        assert caught.value.hint == "Resume: tpuctl watch r1\nEnd it, and delete that: tpuctl cancel r1"
        assert caught.value.facts == {"may_bill": ["r1-1"]}


class TestAllRuns:
    def test_are_an_owners_that_go_on_or_are_to_be_started_again(self, played: PlayedWatch) -> None:
        played.submit("goes-on")
        played.submit("again", outcome=runs.PREEMPTED, restarts=True)
        played.submit("ended", outcome=runs.STOPPED)
        played.submit("theirs", owner="bob")
        played.memory.put("runs/strange/run.json", b"{")
        names = [run.name for run in open_runs(cast("Any", played.memory), "ada")]
        assert sorted(names) == ["again", "goes-on"]

    def test_get_a_step_each(self, played: PlayedWatch) -> None:
        played.submit("goes-on")
        played.submit("theirs", owner="bob")
        played.steps = {"goes-on": [event(RESTARTED, run="goes-on")]}
        played.watch_all(once=True)
        assert played.shown == [event(RESTARTED, run="goes-on")]

    def test_of_one_look_end_with_an_error(self, played: PlayedWatch) -> None:
        played.submit("goes-on")
        played.steps = {"goes-on": [DeadlineError("No answer.")]}
        with pytest.raises(DeadlineError, match="No answer"):
            played.watch_all(once=True)

    def test_of_one_look_name_each_that_is_in_trouble(self, played: PlayedWatch) -> None:
        played.submit("a")
        played.submit("b")
        played.steps = {"a": [UsageError("a lacks a value.")], "b": [UsageError("b lacks a value.")]}
        with pytest.raises(UsageError, match="a lacks a value"):
            played.watch_all(once=True)
        assert played.reports[-1] == "b lacks a value."

    def test_are_told_once_of_a_value_that_nobody_here_knows_and_tried_again(
        self, played: PlayedWatch
    ) -> None:
        played.submit("a")
        missing = UsageError("a lacks a value.")
        played.steps = {"a": [missing, missing, event(RESTARTED, run="a")]}
        self.watch_until(played, lambda: not played.steps["a"])
        assert played.shown == [WatchEvent("a", 0, WAITS, "a lacks a value."), event(RESTARTED, run="a")]
        assert played.times["a"][1] >= next(watch.PAUSES.pauses()), "not at each look"

    def test_that_are_not_started_yet_are_looked_at_again_without_a_word(self, played: PlayedWatch) -> None:
        played.submit("a")
        played.steps = {"a": [NotFoundError("Run 'a' was not started."), event(RESTARTED, run="a")]}
        self.watch_until(played, lambda: not played.steps["a"])
        assert played.shown == [event(RESTARTED, run="a")]

    @pytest.mark.parametrize("what", ["bucket", "provider"])
    def test_are_watched_on_after_an_outage_which_is_told_once(
        self, played: PlayedWatch, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        played.submit("a")
        played.steps = {"a": [event(RESTARTED, run="a")] * 9}
        outage = [DeadlineError("No answer.")] * 3

        def fail() -> None:
            if outage:
                raise outage.pop()

        if what == "bucket":
            played.memory.meanwhile = fail
        else:
            monkeypatch.setattr(watch, "SWEEP_EVERY", 1)
            monkeypatch.setattr(watch, "take_inventory", lambda provider: fail() or NOTHING)
        self.watch_until(played, lambda: not outage and bool(played.shown))
        assert played.shown == [event(RESTARTED, run="a")]
        assert played.reports.count("No answer. Still watching.") == 1

    def test_of_one_look_end_with_an_outage(self, played: PlayedWatch) -> None:
        def fail() -> None:
            raise DeadlineError("No answer.")

        played.memory.meanwhile = fail
        with pytest.raises(DeadlineError, match="No answer"):
            played.watch_all(once=True)

    def watch_until(self, played: PlayedWatch, is_enough: Callable[[], bool]) -> None:
        """Watch all runs until something is so at the end of a look."""

        def sleep(seconds: float) -> None:
            if is_enough():
                raise Enough
            played.time.sleep(seconds)

        played.watcher._sleep = sleep
        with pytest.raises(Enough):
            played.watch_all()

    def test_that_ended_while_nobody_watched_leave_no_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = ("again", "ended", "goes-on", "nowhere", "theirs")
        provider = MemoryProvider(
            node(), *(node(f"{name}-2", labels={**node().labels, RESTART_LABEL: name}) for name in names)
        )
        played = PlayedWatch(monkeypatch, provider)
        played.submit("goes-on")
        played.submit("again", outcome=runs.PREEMPTED, restarts=True)
        played.submit("ended", outcome=runs.STOPPED)
        played.submit("theirs", owner="bob", outcome=runs.STOPPED)
        deleted: list[str] = []
        monkeypatch.setattr(watch, "delete_all", lambda tools, name, machine: deleted.append(name))
        played.watcher.sweep("ada")
        assert deleted == ["ended"]
        (gone, bills) = played.reports
        assert gone.startswith("nowhere: There is no run")
        assert bills == f"nowhere-2 in {node().zone} was made for it, and bills: tpuctl down nowhere-2"

    def test_ctrl_c_while_their_machines_are_deleted_ends_the_watching(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played = PlayedWatch(
            monkeypatch, MemoryProvider(node("ended-2", labels={**node().labels, RESTART_LABEL: "ended"}))
        )
        played.submit("ended", outcome=runs.STOPPED)

        def interrupted(*_: object) -> None:
            raise InterruptedByUser("Interrupted.")

        monkeypatch.setattr(watch, "delete_all", interrupted)
        with pytest.raises(InterruptedByUser):
            played.watcher.sweep("ada")

    def test_are_listed_at_each_look_and_their_machines_every_five_minutes(
        self, played: PlayedWatch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played.submit("theirs", owner="bob")
        looks: list[float] = []
        sweeps: list[float] = []
        reads: list[str] = []
        find = played.memory.find

        def sleep(seconds: float) -> None:
            looks.append(played.time.now)
            played.time.sleep(seconds)
            if played.time.now > 1000.0 + 605.0:
                raise Enough

        def read(name: str, most: int = 0) -> bytes | None:
            reads.append(name)
            return find(name)

        monkeypatch.setattr(played.watcher, "_sleep", sleep)
        monkeypatch.setattr(played.watcher, "sweep", lambda owner: sweeps.append(played.time.now - 1000.0))
        monkeypatch.setattr(played.memory, "find", read)
        with pytest.raises(Enough):
            played.watch_all()
        assert len(looks) == 61
        assert sweeps == [0.0, 300.0, 600.0]
        assert reads.count("runs/theirs/run.json") == 1, "whose it is does not change"
