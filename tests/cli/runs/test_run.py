"""The command run: from nothing to results, continued where it ended, and what it says when it stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runs.test_queue import await_states
from tests.crashes.world import Killed
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cli.main import run
from tpuctl.cli.runs import run as run_command
from tpuctl.cli.session import Session
from tpuctl.client.runs import whole
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.nodes.placement import rounds
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch
from tpuctl.host.worker.records import RUNNING
from tpuctl.nodes import NodeState
from tpuctl.parallel import fanout
from tpuctl.polling import Backoff, poll
from tpuctl.runs import Verdict

Command = Callable[..., CommandResult]
HEADER = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# accelerator = "v3-8"\n# ///\n'
)
JOB = HEADER + "import sys, time\nprint('hello')\nsys.exit(int(sys.argv[1]))\n"
LONG = HEADER + "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(autouse=True)
def scripts(home: Path) -> None:
    """A short script, and a long one."""
    Path("job.py").write_text(JOB)
    Path("long.py").write_text(LONG)


@pytest.fixture
def meanwhile(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets something happen once a run's log has begun, and before it is followed."""

    def during(act: Callable[[], None]) -> None:
        real = run_command.follow_to_end

        def follow(session: Session, stored: StoredRun) -> Verdict:
            await_states(bucket, stored.name, RUNNING)
            await_line(stored)
            act()
            return real(session, stored)

        monkeypatch.setattr(run_command, "follow_to_end", follow)

    return during


def await_line(stored: StoredRun) -> None:
    """Wait until the bucket has a piece of the log: a script that runs may not have printed yet."""
    poll(
        lambda: stored.last_attempt().ordered_chunks() or None,
        awaiting="its first line", timeout=120, backoff=Backoff(0.05, 0.3),
    )  # fmt: skip


def creates(simulator: RunningSimulator) -> int:
    """The number of nodes that were ever requested."""
    return len(simulator.events.find(kind="request", what="CreateNode"))


def nodes(simulator: RunningSimulator) -> list[str]:
    return [node.name.rpartition("/")[2] for node in simulator.world.nodes.all()]


@pytest.mark.parametrize("job", ["0", "3"])
def test_it_goes_on_to_the_end_where_nobody_reads_its_output(
    tpuctl: Command, simulator: RunningSimulator, job: str
) -> None:
    """`| head` closed the pipe: the command ended with 0, and its TPU went on billing."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ("run", "job.py", "--up", "v3-8", "--down", "--yes", "--name", "r1", "--", job)
    command = [sys.executable, "-m", "tpuctl", *words]
    ended = subprocess.run(command, stdout=writer, stderr=writer, stdin=subprocess.DEVNULL, check=False)
    os.close(writer)
    assert ended.returncode == (0 if job == "0" else 100)
    assert (creates(simulator), nodes(simulator)) == (1, [])
    assert Path("r1/logs/attempt-1-worker-0.log").read_text() == "hello\n"


@pytest.fixture
def preempted_at_start(
    simulator: RunningSimulator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Has a node preempted when the first script is to be started there."""
    real = launch.launch_all
    monkeypatch.setattr(watch, "PAUSES", Backoff(0.2, 0.5))

    def preempt(name: str) -> None:
        def launch_all(*arguments: Any, **options: Any) -> None:
            monkeypatch.setattr(launch, "launch_all", real)
            simulator.faults.add("preemption", node=name, grace=0.0)
            poll(
                lambda: NodeState.PREEMPTED in [node.state for node in cloud.provider.list_nodes().nodes]
                or None,
                awaiting="the preemption", timeout=60, backoff=Backoff(0.05, 0.3),
            )  # fmt: skip
            real(*arguments, **options)

        monkeypatch.setattr(launch, "launch_all", launch_all)

    return preempt


@pytest.mark.slow
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_preemption_while_it_starts_the_script_is_one_and_it_goes_on_with_another_tpu(
    tpuctl: Command, bucket: Bucket, simulator: RunningSimulator,
    preempted_at_start: Callable[[str], None], is_whole: bool,
) -> None:  # fmt: skip
    """It was told as a failure; `submit --attach` goes on, too."""
    if is_whole:
        preempted_at_start("r1")
        ended = tpuctl(
            "run", "job.py", "--up", "v3-8", "--spot", "--down", "--yes", "--name", "r1", "--", "0"
        )
    else:
        assert tpuctl("up", "v3-8", "--spot", "--name", "n1", "--yes").code == 0
        preempted_at_start("n1")
        ended = tpuctl("submit", "job.py", "--attach", "--name", "r1", "--", "0")
    assert ended.code == 0, ended.err
    assert "hello\n" in ended.out
    assert ended.err.count("Run 'r1' was preempted: the node is PREEMPTED; it could not be started:") == 1
    assert [verdict.outcome for verdict in StoredRun(bucket, "r1").earlier_verdicts(2)] == [runs.PREEMPTED]
    assert nodes(simulator) == [], "what was preempted, and what was made for the restart, is deleted"


def test_one_command_leads_from_nothing_to_results(tpuctl: Command, simulator: RunningSimulator) -> None:
    up = ("run", "job.py", "--up", "v3-8", "--spot")
    planned = tpuctl(*up, "--down", "--name", "r1", "--dry-run", "--json", "--", "0")
    methods = [(request["method"], request["url"].partition("?")[0]) for request in planned.json["requests"]]
    assert [method for method, _ in methods] == ["POST", "POST", "POST", "POST", "POST", "SSH", "DELETE"]
    assert methods[-1][1].endswith("/nodes/r1")
    for fact in ("price per hour", "the TPU is deleted", "spot            yes"):
        assert fact in planned.err
    refused = tpuctl(*up, "--down", "--name", "r1", "--", "0")
    assert (refused.code, creates(simulator)) == (10, 0)
    result = tpuctl(*up, "--down", "--name", "r1", "--yes", "--", "0")
    assert (result.code, result.out) == (0, "hello\n"), result.err
    assert "Deleted r1." in result.err
    assert json.loads(Path("r1/run.json").read_text())["arguments"] == ["0"]
    assert Path("r1/logs/attempt-1-worker-0.log").read_text() == "hello\n"
    again = tpuctl(*up, "--down", "--name", "r1", "--json", "--", "0")
    assert (again.code, creates(simulator), nodes(simulator)) == (0, 1, [])
    end = json.loads(again.out.splitlines()[-1])
    assert (end["run"], end["outcome"], end["exit_code"], end["deleted"]) == ("r1", "succeeded", None, [])
    other = tpuctl(*up, "--name", "r1", "--yes", "--", "3")
    assert (other.code, "'r1' already, of job.py or with other arguments" in other.err) == (4, True)

    failed = tpuctl("run", "job.py", "--up", "--down", "--yes", "--json", "--", "3")
    assert failed.code == 100, failed.err
    *log, end, error = map(json.loads, failed.out.splitlines())
    assert [line["text"] for line in log] == ["hello"]
    assert end["run"].startswith("job-")
    assert f"this continues it: tpuctl run job.py --up --down --name {end['run']} -- 3" in failed.err
    assert (end["outcome"], end["exit_code"], end["deleted"]) == ("failed", 3, [end["run"]])
    assert error["error"]["exit_code"] == 100
    assert nodes(simulator) == []


def test_a_dry_run_shows_what_would_run_and_the_origins_of_settings(tpuctl: Command) -> None:
    result = tpuctl("run", "job.py", "--up", "--name", "r1", "--env", "A=1", "--dry-run", "--", "0")
    assert result.code == 0, result.err
    for name, value in (("runs", "job.py 0 (script)"), ("env", "A (--env)"), ("sends", "1 file")):
        assert any(
            line.split(maxsplit=1)[0:1] == [name] and value in line for line in result.err.splitlines()
        )


def test_a_tpu_that_is_to_be_deleted_ends_also_without_the_command(
    tpuctl: Command, simulator: RunningSimulator
) -> None:
    """A closed terminal, a kill or a full disk may end the command before it deletes anything."""

    def planned(*words: str) -> dict[str, str]:
        result = tpuctl("run", "job.py", "--up", *words, "--name", "r1", "--dry-run", "--json", "--", "0")
        metadata = result.json["requests"][0]["body"]["metadata"]
        return {key: value for key, value in metadata.items() if key in ("tpuctl-idle", "tpuctl-ttl")}

    assert planned("--down") == {"tpuctl-idle": "3600s"}
    for words, end in (
        ((), {}),
        (("--down", "--idle", "10m"), {"tpuctl-idle": "600s"}),
        (("--down", "--ttl", "8h"), {"tpuctl-ttl": "28800s"}),
        (("--down", "--idle", "0s"), {}),
        (("--down", "--scopes", "storage-rw"), {}),
    ):
        assert planned(*words) == end, words
    asked = tpuctl("run", "job.py", "--up", "--down", "--name", "r1", "--", "0")
    assert "time to live    1h without use (--idle); then it deletes itself" in asked.err


def test_what_it_must_not_delete_stays(tpuctl: Command, simulator: RunningSimulator, bucket: Bucket) -> None:
    kept = tpuctl("run", "job.py", "--up", "--name", "r1", "--yes", "--", "0")
    assert kept.code == 0, kept.err
    assert "r1 goes on billing until 'tpuctl down r1'" in kept.err
    assert tpuctl("submit", "long.py", "--name", "other").code == 0
    await_states(bucket, "other", RUNNING)
    used = tpuctl("run", "job.py", "--up", "--name", "r1", "--down", "--", "0")
    assert used.code == 0, used.err
    assert "Run 'other' uses it. r1 goes on billing until 'tpuctl down r1'." in used.err
    assert tpuctl("cancel", "other", "--yes").code == 0
    bucket.upload("runs/r1/.envrc", [b"x"], "application/octet-stream")
    unwritten = tpuctl("run", "job.py", "--up", "--name", "r1", "--down", "--", "0")
    assert unwritten.code == 4
    assert "1 object of run 'r1' cannot be written to this disk" in unwritten.err
    assert "node 'r1' in europe-west4-a bills" in unwritten.err
    assert "Continue: tpuctl run job.py --up --name r1 --down -- 0\n" in unwritten.err
    assert "Delete the node: tpuctl down r1" in unwritten.err
    assert nodes(simulator) == ["r1"]
    bucket.remove(bucket.objects("runs/r1/.envrc")[0])
    home = tpuctl("run", "job.py", "--up", "--name", "r1", "--down", "--", "0")
    assert (home.code, nodes(simulator)) == (0, []), home.err

    assert tpuctl("up", "v3-8", "--name", "mine", "--yes").code == 0
    own = tpuctl("run", "job.py", "--up", "v3-8", "--name", "mine", "--down", "--", "0")
    assert own.code == 0, own.err
    assert "mine was not made for this run. mine goes on billing" in own.err
    without = tpuctl("run", "job.py", "--name", "r3", "--", "0")
    assert without.code == 0, without.err
    assert "mine goes on billing" in without.err
    assert nodes(simulator) == ["mine"]


def test_a_preemption_in_the_middle_is_told_and_what_is_left_is_deleted(
    tpuctl: Command, simulator: RunningSimulator, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    meanwhile(lambda: simulator.faults.add("preemption", node="r1") and None)
    command = ("run", "long.py", "--up", "--spot", "--down", "--name", "r1", "--yes", "--restarts", "0")
    result = tpuctl(*command)
    assert result.code == 7, result.err
    assert "Run 'r1' was preempted" in result.err
    assert "tpuctl up v3-8 --spot" in result.err
    assert Path("r1/logs/attempt-1-worker-0.log").read_text() == "step 1\n"
    assert (nodes(simulator), creates(simulator)) == ([], 1)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_spot_run_is_started_again_after_a_preemption_and_ends_as_any(
    tpuctl: Command, simulator: RunningSimulator, bucket: Bucket, monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(watch, "PAUSES", Backoff(0.2, 0.5))
    Path("job.py").write_text(
        HEADER + "import os, time\nattempt = int(os.environ['TPUCTL_ATTEMPT'])\nprint('attempt', attempt)\n"
        "if attempt == 1: time.sleep(600)\n"
    )
    real, attempts = run_command.follow_to_end, list[int]()

    def follow(session: Session, stored: StoredRun) -> Verdict:
        attempts.append(stored.last_attempt().number)
        if attempts == [1]:
            await_line(stored)
            simulator.faults.add("preemption", node="r1")
        return real(session, stored)

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(run_command, "follow_to_end", follow)
    command = ("run", "job.py", "--up", "--spot", "--down", "--name", "r1", "--yes")
    if is_killed:
        with monkeypatch.context() as patch:
            patch.setattr(whole, "await_restart", kill)
            with pytest.raises(Killed):
                tpuctl(*command)
        planned = tpuctl(*command, "--dry-run").out
        assert "start job.py as attempt 2" in planned
    result = tpuctl(*command)
    assert result.code == 0, result.err
    assert ("is started again" in result.err) is not is_killed
    assert (attempts, creates(simulator), nodes(simulator)) == ([1, 2], 2, [])
    logs = [Path(f"r1/logs/attempt-{number}-worker-0.log").read_text() for number in (1, 2)]
    assert logs == ["attempt 1\n", "attempt 2\n"]


def test_two_of_one_name_at_once_are_as_good_as_one(
    simulator: RunningSimulator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.ssh.login_key()  # both log in with one key
    Path("job.py").write_text(
        f"{HEADER}import pathlib, time\nprint('hello')\n"
        f"while not pathlib.Path({str(Path.cwd() / 'go')!r}).exists(): time.sleep(0.05)\n"
    )
    both, real = threading.Barrier(2, lambda: Path("go").touch()), run_command.follow_to_end

    def follow(session: Session, stored: StoredRun) -> Verdict:
        both.wait(120)
        return real(session, stored)

    monkeypatch.setattr(run_command, "follow_to_end", follow)
    command = ("run", "job.py", "--up", "--down", "--yes", "--name", "r1", "--to")
    results = fanout(lambda folder: run([*command, folder]), ["a", "b"])
    assert [result.value for result in results] == [0, 0]
    assert len(simulator.events.find(kind="transition", what="CREATING")) == 1
    assert nodes(simulator) == []
    for folder in ("a", "b"):
        assert Path(folder, "logs/attempt-1-worker-0.log").read_text() == "hello\n"


def test_ctrl_c_says_what_goes_on_and_the_same_command_continues(
    tpuctl: Command,
    simulator: RunningSimulator,
    meanwhile: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    real = run_command.follow_to_end
    meanwhile(interrupt)
    result = tpuctl("run", "long.py", "--up", "--down", "--name", "r1", "--yes")
    assert result.code == 130
    assert "Interrupted; run 'r1' goes on, and node 'r1' in europe-west4-a bills." in result.err
    for text in (
        "Continue: tpuctl run long.py --up --down --name r1\n",
        "Stop the run: tpuctl cancel r1\n",
        "Delete the node: tpuctl down r1",
    ):
        assert text in result.err
    monkeypatch.setattr(run_command, "follow_to_end", real)
    assert tpuctl("cancel", "r1", "--yes", "--grace", "0s").code == 0
    ended = tpuctl("run", "long.py", "--up", "--down", "--name", "r1")
    assert ended.code == 4
    assert "stopped by" in ended.err
    assert (nodes(simulator), creates(simulator)) == ([], 1)


def test_a_worker_that_cannot_start_leaves_nothing_that_bills(
    tpuctl: Command, simulator: RunningSimulator
) -> None:
    Path("job.py").write_text(JOB.replace("# dependencies", '# requires-python = ">=9"\n# dependencies'))
    result = tpuctl("run", "job.py", "--up", "--down", "--name", "r1", "--yes", "--", "0")
    assert result.code in (2, 100), result.err
    assert nodes(simulator) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("job.py", "--down"), "there is no --up"),
        (("--up", "job.py"), "stands where the TPU type"),
        (("job.py", "--up", "v99-8"), "v99-8"),
        (("job.py", "--up", "v3-8", "--tpu", "n1"), "--tpu is for one that exists"),
        (("missing.py", "--up", "v3-8"), "missing.py"),
        (("job.py", "--up", "v3-8", "--name", "No"), "cannot name a run"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tpuctl: Command, simulator: RunningSimulator, arguments: tuple[str, ...], text: str
) -> None:
    result = tpuctl("run", *arguments, "--yes")
    assert (result.code, text in result.err, creates(simulator)) == (2, True, 0), result.err
    assert "continues it" not in result.err


def test_a_type_without_capacity_gives_way_to_the_next(tpuctl: Command, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout", zone="europe-west4-a", type="v3-8")
    options = ("run", "job.py", "--up", "v3-8,v2-8", "--name", "r1", "--yes")
    zone = ("--zone", "europe-west4-a")
    result = tpuctl(*options, *zone, "--", "0")
    assert result.code == 0, result.err
    assert [node.accelerator_type for node in simulator.world.nodes.all()] == ["v2-8"]


def test_each_round_of_a_run_that_waits_for_capacity_is_another_request(
    tpuctl: Command, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ROUNDS", Backoff(first=0.01))
    simulator.faults.add(
        "failed-operation", method="CreateQueuedResource", count=3, code="RESOURCE_EXHAUSTED",
        message="Quota 'TPUV3sPerProjectPerZoneForTPUAPI' exhausted. Limit 8 in zone europe-west4-a",
    )  # fmt: skip
    options = ("--up", "v3-8", "--queued", "--wait-capacity", "1h", "--down", "--name", "r1", "--yes")
    result = tpuctl("run", "job.py", *options, "--", "0")
    assert result.code == 0, result.err
    sent = simulator.events.find(kind="request", what="CreateQueuedResource")
    assert len({(event.body or {})["requestId"] for event in sent}) == len(sent) == 4
    assert [*simulator.world.nodes.all(), *simulator.world.queued_resources.all()] == []
