"""The command watch: a run that was preempted goes on by itself, and leaves nothing that bills."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.flows.runs.records import CREATED
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cli.runs import watch as command
from tpuctl.cloud.endpoints import Cloud
from tpuctl.errors import (
    DeadlineError,
    InterruptedByUser,
    JobFailedError,
    NotFoundError,
    StateError,
    UsageError,
)
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.lease import WatchEvent
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Backoff, poll

Command = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
COUNTS = HEADER + (
    "import os, pathlib, sys, time\n"
    "place = pathlib.Path(os.environ['COUNTS'])\n"
    "print('attempt', os.environ['TPUCTL_ATTEMPT'], *sys.argv[1:], flush=True)\n"
    "with place.open('a') as stream: stream.write(os.environ['TPUCTL_ATTEMPT'] + '\\n')\n"
    "while len(place.read_text().split()) < int(os.environ['ATTEMPTS']): time.sleep(0.05)\n"
)
"""Waits to be preempted until it was started so often; says in a file that it has printed its line."""
PATIENCE = 60.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and ask about every silence at once."""
    monkeypatch.setattr(watch, "INTERVAL", 0.2)
    monkeypatch.setattr(watch, "PAUSES", Backoff(0.2, 0.5))
    for name in ("CHECK_NODE_AFTER", "ASK_HOST_AFTER"):
        monkeypatch.setattr(decision, name, 2.0)


def until(condition: Callable[[], object], awaiting: str) -> None:
    """Wait for an event."""
    poll(
        lambda: True if condition() else None, awaiting=awaiting, timeout=PATIENCE, backoff=Backoff(0.05, 0.2)
    )


class Started:
    """A run that was submitted to a spot TPU."""

    def __init__(self, tpuctl: Command, simulator: RunningSimulator, folder: Path, attempts: int) -> None:
        self.place = folder / "counts"
        self.place.touch()
        self._simulator = simulator
        up = tpuctl("up", "v3-8", "--name", "n1", "--spot", "--framework", "jax", "--yes")
        assert up.code == 0, up.err
        Path("job.py").write_text(COUNTS)
        submitted = tpuctl(
            "submit", "job.py", "--name", "r1", "--env", f"COUNTS={self.place}",
            "--env", f"ATTEMPTS={attempts}", "--", "--epochs", "3",
        )  # fmt: skip
        assert submitted.code == 0, submitted.err
        self.until_attempt(1)

    @property
    def attempts(self) -> list[str]:
        """The attempts whose script was started, in order."""
        return self.place.read_text().split()

    def until_attempt(self, number: int) -> None:
        """Wait until the script of an attempt runs."""
        until(lambda: len(self.attempts) >= number, f"the script of attempt {number}")

    def preempt(self) -> None:
        """Preempt every node that is READY."""
        for node in self._simulator.world.nodes.all():
            if node.state == "READY":
                self._simulator.call(self._simulator.world.preempt(node.name))


def billing(simulator: RunningSimulator) -> list[str]:
    """The names of what bills or may come to bill."""
    world = simulator.world
    return [item.name.rpartition("/")[2] for item in (*world.nodes.all(), *world.queued_resources.all())]


def test_a_preempted_run_goes_on_with_its_arguments_and_variables_on_another_machine(
    tpuctl: Command, simulator: RunningSimulator, cloud: Cloud, tmp_path: Path, quick: None
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    run.preempt()
    stored = StoredRun(cloud.bucket, "r1")
    waited = tpuctl("wait", "r1")
    assert (waited.code, "tpuctl watch r1" in waited.err) == (7, True), waited.err
    watched = tpuctl("watch", "r1")
    assert watched.code == 0, watched.err
    assert "attempt 2 restarted: on r1-2 in europe-west4-a" in watched.out
    assert run.attempts == ["1", "2"]
    assert billing(simulator) == []
    verdict = stored.verdict()
    assert verdict
    assert (verdict.outcome, verdict.attempt) == (runs.SUCCEEDED, 2)
    assert [verdict.outcome for verdict in stored.earlier_verdicts(2)] == [runs.PREEMPTED]
    assert "attempt 2 --epochs 3\n" in tpuctl("logs", "r1").out
    (listed,) = tpuctl("runs", "--json").json["runs"]
    assert (listed["state"], listed["attempt"]) == ("succeeded", 2)
    assert "attempt 2" in tpuctl("runs").out
    facts = {fact["name"]: fact["value"] for fact in tpuctl("describe", "r1", "--json").json["run"]["facts"]}
    assert facts["restarts"].startswith(
        "without end after a loss, 0 times after a failure, in europe-west4-a"
    )
    assert facts["end of attempt 1"].startswith("preempted at 20")
    assert facts["gap"]
    assert facts["attempt 2"].startswith("on r1-2 in europe-west4-a")


def test_cancel_ends_a_run_that_waits_to_be_started_again(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    run.preempt()
    assert tpuctl("wait", "r1").code == 7
    gone = tpuctl("down", "--all", "--yes")
    waits = "Run 'r1' is to be started again, on a TPU that bills. End it: tpuctl cancel r1\n"
    for told in (gone, tpuctl("cost", "--now")):
        assert waits in told.err, told
    shown = tpuctl("cancel", "r1", "--dry-run", "--json")
    assert [request["method"] for request in shown.json["requests"]] == ["POST"]
    cancelled = tpuctl("cancel", "r1", "--yes", "--json")
    assert cancelled.code == 0, cancelled.err
    assert cancelled.json["outcome"] == "stopped"
    watched = tpuctl("watch", "r1")
    assert (watched.code, "was stopped by" in watched.err) == (4, True)
    assert run.attempts == ["1"]
    assert billing(simulator) == []
    assert "to be started again" not in tpuctl("down", "--all", "--yes").err


def test_cancel_deletes_the_machine_that_was_made_for_a_run(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=3)
    run.preempt()
    assert tpuctl("wait", "r1").code == 7
    step = tpuctl("watch", "r1", "--once", "--json")
    assert step.code == 0, step.err
    assert step.json["action"] == "restarted"
    run.until_attempt(2)
    assert billing(simulator) == ["r1-2"]
    cancelled = tpuctl("cancel", "r1", "--yes")
    assert cancelled.code == 0, cancelled.err
    assert "r1-2 stays" not in cancelled.err
    assert billing(simulator) == []


def test_a_dry_run_shows_what_a_restart_would_send(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    assert tpuctl("watch", "r1", "--dry-run", "--json").json["requests"] == []
    run.preempt()
    assert tpuctl("wait", "r1").code == 7
    requests = tpuctl("watch", "--all", "--dry-run", "--json").json["requests"]
    assert [request["method"] for request in requests] == ["POST", "POST", "DELETE", "POST", "SSH"]
    assert "nodeId=r1-2" in requests[3]["url"]
    assert billing(simulator) == ["n1"]


def test_what_a_laptop_without_the_values_lacks_is_named_before_anything_bills(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    run.preempt()
    assert tpuctl("wait", "r1").code == 7
    for kept in (tmp_path / "state/launches").rglob("*.json"):
        assert kept.stat().st_mode & 0o777 == 0o600
        kept.unlink()
    asked = tpuctl("watch", "r1")
    assert asked.code == 10
    for fact in (
        " job.py --epochs 3\n",
        "n1 in europe-west4-a, or a new v3-8 (spot)",
        "price per hour",
    ):
        assert fact in asked.err
    assert re.search(r"^ *code:? +[0-9a-f]{64}$", asked.err, re.MULTILINE), asked.err
    refused = tpuctl("watch", "r1", "--yes")
    assert refused.code == 2
    assert "without the values of COUNTS, ATTEMPTS" in refused.err
    assert "tpuctl watch r1 --secret COUNTS --secret ATTEMPTS" in refused.err
    assert billing(simulator) == ["n1"]
    monkeypatch.setenv("COUNTS", str(run.place))
    watched = tpuctl("watch", "r1", "--secret", "COUNTS", "--env", "ATTEMPTS=2")
    assert watched.code == 0, watched.err
    assert run.attempts == ["1", "2"]


def test_who_follows_a_run_of_theirs_starts_it_again_and_reads_each_line_once(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    run.preempt()
    followed = tpuctl("logs", "-f", "r1")
    assert followed.code == 0, followed.err
    assert followed.out == "attempt 1 --epochs 3\nattempt 2 --epochs 3\n"
    assert "Run 'r1' preempted: " in followed.err
    assert run.attempts == ["1", "2"]
    assert "deleted r1-2" in followed.err
    assert billing(simulator) == []


def test_a_run_of_another_machine_is_started_again_by_nobody_who_follows_it_or_watches_all(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    run.preempt()
    shutil.rmtree(tmp_path / "state/launches")
    followed = tpuctl("logs", "-f", "r1")
    assert (followed.code, "unless by 'tpuctl watch r1'" in followed.err) == (7, True), followed.err
    watched = tpuctl("watch", "--all", "--once")
    assert (watched.code, "Run 'r1' was not submitted from here" in watched.err) == (3, True), watched.err
    assert billing(simulator) == ["n1"]


def test_who_follows_the_run_of_somebody_else_does_not_start_it_again(
    tpuctl: Command, simulator: RunningSimulator, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    run.preempt()
    monkeypatch.setenv("TPUCTL_OWNER", "bob@example.com")
    followed = tpuctl("logs", "-f", "r1")
    assert (followed.code, "tpuctl watch r1" in followed.err) == (7, True)
    assert billing(simulator) == ["n1"]


class TestWhatIsTold:
    """By a watcher of runs whose ends are known."""

    def session(self, *, as_json: bool = False) -> Any:
        bucket = SimpleNamespace(now=lambda: datetime(2026, 1, 1, 12, tzinfo=UTC))
        cloud = SimpleNamespace(bucket=bucket)
        return SimpleNamespace(as_json=as_json, owner="ada", context="context", cloud=cloud)

    def stored(self, outcome: str | None) -> Any:
        verdict = runs.Verdict("r1", outcome, 1, CREATED, "this is how") if outcome else None
        return SimpleNamespace(name="r1", verdict=lambda: verdict)

    @pytest.mark.parametrize("outcomes", [[], [None], [None, None]])
    def test_runs_that_have_not_ended_are_no_error(
        self, outcomes: list[str | None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        command._end([self.stored(outcome) for outcome in outcomes])
        assert capsys.readouterr() == ("", "")

    def test_the_next_command_is_that_of_the_first_run_that_has_ended(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command._end([self.stored(outcome) for outcome in (None, runs.SUCCEEDED, runs.SUCCEEDED)])
        assert capsys.readouterr() == ("", "Next: tpuctl pull r1\n")

    def test_the_error_is_that_of_the_first_run_that_did_not_succeed(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(JobFailedError, match="Run 'r1' failed: this is how"):
            command._end([self.stored(name) for name in (runs.SUCCEEDED, None, runs.FAILED, runs.LOST)])
        assert capsys.readouterr() == ("", "")

    def test_an_event_is_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        event = WatchEvent("r1", 2, "restarted", "on r1-2")
        command._show(self.session(), event)
        assert capsys.readouterr().out == "2026-01-01T12:00:00Z  r1: attempt 2 restarted: on r1-2\n"
        command._show(self.session(as_json=True), event)
        line = json.loads(capsys.readouterr().out)
        del line["schema"]
        assert line == {
            "at": "2026-01-01T12:00:00Z", "run": "r1", "attempt": 2, "action": "restarted",
            "detail": "on r1-2",
        }  # fmt: skip

    def test_runs_are_named_or_the_only_open_one_or_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]
        monkeypatch.setattr(command.steps, "named", lambda context, run: f"named {run}")
        monkeypatch.setattr("tpuctl.flows.runs.recovery.watch.open_runs", lambda bucket, owner: own)
        context: Any = SimpleNamespace(cloud=SimpleNamespace(bucket="b"), owner="ada")

        def chosen(*names: str, everything: bool = False) -> list[Any]:
            return command.steps.to_watch(context, names, everything=everything)

        assert chosen("b", "a", "b") == ["named b", "named a"]
        assert chosen(everything=True) == []
        with pytest.raises(UsageError, match="exclude each other"):
            chosen("a", everything=True)
        with pytest.raises(StateError, match=r"^You have 2 runs to watch: a, b\.$") as several:
            chosen()
        assert several.value.hint == "Name those to watch. All of them: tpuctl watch --all"
        del own[0]
        assert chosen() == own
        own.clear()
        with pytest.raises(NotFoundError, match=r"^You have no run that could be started again\.$"):
            chosen()


class TestWhoStartsAgain:
    """A command that has followed a run of its user to the end of an attempt."""

    VERDICT = runs.Verdict("r1", runs.PREEMPTED, 1, CREATED, "its node is gone", restarts=True)

    @pytest.fixture
    def start(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
        def start(owner: str, act: Callable[[], None]) -> bool:
            monkeypatch.setattr(command, "is_own", lambda run, name: name == "ada")
            monkeypatch.setattr(command, "tools", lambda *_: "tools")
            monkeypatch.setattr(command.steps, "unknown_runs", lambda *_: [])
            monkeypatch.setattr(command, "await_restart", lambda run, tools: act())
            stored: Any = SimpleNamespace(name="r1", attempt_numbers=lambda: [1])
            session: Any = SimpleNamespace(owner=owner, context=None)
            return command.starts_again(session, stored, self.VERDICT)

        return start

    def test_its_user_does(self, start: Callable[..., bool], capsys: pytest.CaptureFixture[str]) -> None:
        done: list[str] = []
        assert start("ada", lambda: done.append("restart"))
        assert done == ["restart"]
        said = capsys.readouterr().err
        assert "Run 'r1' preempted: its node is gone. It is started again." in said

    def test_nobody_else_does(self, start: Callable[..., bool], capsys: pytest.CaptureFixture[str]) -> None:
        done: list[str] = []
        assert not start("bob", lambda: done.append("restart"))
        assert (done, capsys.readouterr().err) == ([], "")

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), InterruptedByUser("Interrupted.")])
    def test_an_interrupt_names_the_machine_that_may_bill(
        self, start: Callable[..., bool], interrupt: BaseException
    ) -> None:
        def act() -> None:
            raise interrupt

        with pytest.raises(InterruptedByUser, match="its machine may bill already: r1-2"):
            start("ada", act)


class TestWhatIsWatched:
    """By the command: runs that are named, or all, until they have ended or for one step."""

    @pytest.fixture
    def call(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
        def call(
            *names: str, everything: bool = False, once: bool = False, dry: bool = False
        ) -> list[object]:
            done: list[object] = []

            def watched(context: object, stored: object, tools: object, *, once: bool) -> list[str]:
                done.append((stored, once))
                return ["event"]

            def to_watch(context: object, names: tuple[str, ...], *, everything: bool) -> list[str]:
                assert everything is not bool(names)
                return list(names)

            monkeypatch.setattr(command, "tools", lambda *_: "tools")
            monkeypatch.setattr(command, "_show", lambda session, event: done.append(event))
            monkeypatch.setattr(command, "_end", lambda stored: done.append(("end", stored)))
            steps = SimpleNamespace(watched=watched, to_watch=to_watch, unknown_runs=lambda *_: [])
            monkeypatch.setattr(command, "steps", steps)
            monkeypatch.setattr(command, "open_runs", lambda bucket, owner: [f"all of {owner}"])
            monkeypatch.setattr(
                command, "drill", SimpleNamespace(requests=lambda run, tools: [f"requests for {run}"])
            )
            monkeypatch.setattr(command.output, "requests", lambda shown, as_json: done.append(shown))
            session: Any = SimpleNamespace(
                context="context", owner="ada", as_json=False, cloud=SimpleNamespace(bucket="b")
            )
            callback: Any = command.watch.callback
            callback.__wrapped__(
                session, runs=names, everything=everything, once=once, environment=(), env_files=(),
                secrets=(), yes=False, dry_run=dry,
            )  # fmt: skip
            return done

        return call

    def test_runs_until_they_have_ended(self, call: Callable[..., list[object]]) -> None:
        assert call("a", "b") == [(["a", "b"], False), "event", ("end", ["a", "b"])]
        assert call(everything=True) == [([], False), "event", ("end", [])]

    def test_one_step_has_no_end(self, call: Callable[..., list[object]]) -> None:
        assert call("a", once=True) == [(["a"], True), "event"]

    def test_a_dry_run_takes_no_step(self, call: Callable[..., list[object]]) -> None:
        assert call("a", "b", dry=True) == [["requests for a", "requests for b"]]
        assert call(everything=True, dry=True) == [["requests for all of ada"]]


class TestWhatWasMade:
    """A command that has started a run again, after the run's end."""

    def delete(self, monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> list[str]:
        """Return what is warned of."""
        patience = list[float]()

        def act(run: object, tools: object, **limit: float) -> None:
            patience.extend(limit.values())
            if error:
                raise error

        monkeypatch.setattr(command, "tools", lambda *_: "tools")
        monkeypatch.setattr(command, "await_restart", act)
        warnings = list[str]()
        session: Any = SimpleNamespace(warn=warnings.append)
        command.delete_what_was_made(session, cast("Any", SimpleNamespace(name="r1")))
        assert patience == [120.0], "how the run ended is told soon"
        return warnings

    def test_nothing_is_said_where_it_is_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.delete(monkeypatch) == []

    def test_what_cannot_be_deleted_now_is_said_and_no_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.delete(monkeypatch, DeadlineError("Zone a does not answer.")) == [
            "The TPU that was made for run 'r1' may bill: Zone a does not answer. Delete it: tpuctl watch r1"
        ]

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), InterruptedByUser("Interrupted.")])
    def test_an_interrupt_says_what_may_bill(
        self, monkeypatch: pytest.MonkeyPatch, interrupt: BaseException
    ) -> None:
        with pytest.raises(InterruptedByUser, match="The TPU that was made for run 'r1' may bill") as caught:
            self.delete(monkeypatch, interrupt)
        assert caught.value.hint == "Delete it: tpuctl watch r1"
