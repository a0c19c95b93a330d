"""The steps of drills, in a world where waiting takes no time.

The command drill of a run: its TPU is lost on purpose, and what that cost is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.crashes.faults import ZONE
from tests.crashes.world import CrashWorld
from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.passing_time import PassingTime
from tests.flows.runs.recovery.site import Site
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import clock, runs
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError, InterruptedByUser, StateError
from tpuctl.flows.runs.recovery.drill import (  # fmt: skip
    PREEMPTION,
    REBOOT,
    MaintenanceReport,
    RunDrillReport,
    drill,
    plan,
    plan_maintenance,
    simulate_maintenance,
)
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, ordered_log_file
from tpuctl.nodes import Change, Maintenance, Node, NodeId, NodeState, SimulateMaintenance
from tpuctl.polling import Backoff, poll
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_WORKERS, Verdict, encode, verdict_type


class Cloud(MemoryProvider):
    """A node that changes as the test says, look by look."""

    states: Sequence[NodeState] = ()

    def begin(self, change: Change) -> Operation:
        assert change == SimulateMaintenance(self.nodes["n1"].id, 1)
        return Operation("Node 'n1'", lambda: True)

    def get_node(self, node: NodeId) -> Node:
        found = super().get_node(node)
        if not self.states:
            return found
        state, self.states = self.states[0], self.states[1:] or self.states
        return replace(found, state=state)


def drilled(site: Site, late: int) -> RunDrillReport:
    """Drill the run, whose node goes after so many looks, and whose second attempt ends without a step."""
    tools, pauses = site.tools(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == late:
            site.preempt()
        site.world.pass_time(seconds)
        if 2 in site.run.attempt_numbers():
            site.hosts.write(2, 0, FINISHED, exit_code=0)

    planned = plan(site.run, tools, PREEMPTION, site.owner)
    return drill(planned, tools, lambda: None, lambda _: unknown("nobody asked"), sleep)


@pytest.mark.parametrize("late", [1, 3])
def test_what_a_drill_waits_for_is_said_once_however_often_it_looks(world: CrashWorld, late: int) -> None:
    site = Site(world)
    told = drilled(site, late)
    assert (told.outcome, told.attempt, told.next_step) == ("preempted", 2, "")
    assert site.reports == [
        "preemption of n1", "r1: attempt 1 goes on: running", "deleted n1",
        "creating r1-2 (v3-8) in europe-west4-a", "waiting for SSH on 1 host",
        "r1: attempt 2 restarted: on r1-2 in europe-west4-a", "attempt 1 preempted: the node is PREEMPTED",
    ]  # fmt: skip


STATE = b'model_checkpoint_path: "ckpt-%d"\nall_model_checkpoint_paths: "ckpt-%d"\n'


def save(site: Site, number: int) -> None:
    """Write a checkpoint that is committed."""
    folder = site.run.paths.checkpoints
    site.bucket.put(f"{folder}ckpt-{number}.index", b"i")
    site.bucket.put(f"{folder}ckpt-{number}.data-00000-of-00001", b"d")
    site.bucket.put(f"{folder}checkpoint", STATE % (number, number))


def tell(site: Site, attempt: int, text: bytes) -> None:
    """Write the first piece of a worker's log."""
    moment = site.world.time.strftime("%Y%m%dT%H%M%S")
    site.bucket.put(site.run.paths.attempt_folder(attempt) + ordered_log_file(moment, 0, 1), text)


def test_what_a_loss_has_cost_is_from_the_notice_to_the_next_step(world: CrashWorld) -> None:
    site = Site(world)
    save(site, 100)
    tell(site, 1, b"step 120\n")
    tools, began = site.tools(), clock.iso(world.time)

    def strike() -> None:
        world.pass_time(10)
        save(site, 110)
        site.preempt()

    def sleep(seconds: float) -> None:
        world.pass_time(seconds)
        if 2 in site.run.attempt_numbers():
            tell(site, 2, b"step 111\n")

    told = drill(
        plan(site.run, tools, PREEMPTION, site.owner),
        tools,
        strike,
        lambda _: Price(Decimal(36), "USD"),
        sleep,
    )
    assert (told.run, told.kind, told.begun) == ("r1", PREEMPTION, began)
    assert (told.outcome, told.evidence) == (runs.PREEMPTED, "the node is PREEMPTED")
    assert (told.saved, told.resumed_from, told.steps_lost) == ("ckpt-110", "ckpt-110", 10)
    assert (told.attempt, told.node, told.zone) == (2, "r1-2", ZONE)
    assert began <= told.ended < told.restarted <= told.next_step
    seconds = (clock.parse(told.next_step) - clock.parse(began)).total_seconds()
    assert told.seconds_without_steps == seconds
    assert told.cost.amount == round(Decimal(36) * int(seconds) / 3600, 2)


def test_a_checkpoint_from_before_the_notice_was_not_saved_by_it(world: CrashWorld) -> None:
    site = Site(world)
    save(site, 100)
    told = drilled(site, 1)
    assert (told.saved, told.resumed_from) == ("", "ckpt-100")
    assert told.seconds_without_steps is None


class TestPlan:
    def refused(self, site: Site, kind: str = PREEMPTION, owner: str = "") -> tuple[str, str]:
        with pytest.raises(StateError) as refused:
            plan(site.run, site.tools(), kind, owner or site.owner)
        return refused.value.message, refused.value.hint

    def change(self, site: Site, **changes: object) -> None:
        record = msgspec.structs.replace(site.run.record, **changes)
        site.bucket.put(site.run.paths.record, encode(record))
        del site.run.record

    def test_is_of_the_attempt_that_runs(self, world: CrashWorld) -> None:
        site = Site(world)
        save(site, 7)
        planned = plan(site.run, site.tools(), PREEMPTION, site.owner)
        assert (planned.attempt, planned.node.name, planned.checkpoint) == (1, "n1", "ckpt-7")

    def test_is_refused_for_a_run_that_has_ended(self, world: CrashWorld) -> None:
        site = Site(world)
        site.hosts.write(1, 0, FINISHED, exit_code=0)
        assert self.refused(site) == (
            "Run 'r1' is succeeded: a drill is for a run whose script runs.", "tpuctl describe r1",
        )  # fmt: skip

    def test_is_refused_for_a_run_whose_script_does_not_run_yet(self, world: CrashWorld) -> None:
        site = Site(world)
        site.hosts.write(1, 0, "preparing")
        assert self.refused(site)[0] == "Run 'r1' is preparing: a drill is for a run whose script runs."

    @pytest.mark.parametrize(
        "changes", [{"machine": None}, {"restarts": Restarts()}, {"restarts": Restarts(0, after_failure=2)}]
    )
    def test_is_refused_for_a_run_that_a_drill_would_end(
        self, world: CrashWorld, changes: dict[str, object]
    ) -> None:
        site = Site(world)
        self.change(site, **changes)
        assert self.refused(site) == (
            "Run 'r1' has no restarts: a drill would end it.",
            "Submit it with --restarts 3, for instance; or drill its TPU: tpuctl drill TPU",
        )

    def test_is_refused_for_the_run_of_another(self, world: CrashWorld) -> None:
        assert self.refused(Site(world), owner="bob") == (
            "Run 'r1' is not yours.", "Its owner can drill it: 'tpuctl describe' says who.",
        )  # fmt: skip

    def test_of_a_reboot_is_refused_where_hosts_do_not_resume_the_run(self, world: CrashWorld) -> None:
        site = Site(world)
        self.change(site, not_kept=("API_KEY",))
        assert self.refused(site, REBOOT) == (
            "The hosts of run 'r1' do not resume it after a reboot: hosts do not keep the value of API_KEY.",
            "Leave --reboot out, or watch it meanwhile: tpuctl watch r1",
        )
        assert plan(site.run, site.tools(), PREEMPTION, site.owner).attempt == 1


class TestEnd:
    @pytest.mark.parametrize("kind", [PREEMPTION, REBOOT])
    def test_of_a_run_that_is_not_restarted_is_an_error(self, world: CrashWorld, kind: str) -> None:
        site = Site(world)
        tools = site.tools()
        planned = replace(plan(site.run, tools, PREEMPTION, site.owner), kind=kind)

        def strike() -> None:
            verdict = Verdict(
                "r1", runs.STOPPED, 1, clock.iso(world.time), "stopped by bob", basis=BY_WORKERS
            )
            site.bucket.put(site.run.paths.verdict, encode(verdict), verdict_type(verdict))

        with pytest.raises(StateError) as error:
            drill(planned, tools, strike, lambda _: unknown("nobody asked"), world.pass_time)
        assert error.value.message == "Run 'r1' stopped: stopped by bob."
        assert error.value.hint == "tpuctl describe r1"

    def test_by_ctrl_c_says_how_to_restart_the_run(self, world: CrashWorld) -> None:
        site = Site(world)
        tools = site.tools()

        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(InterruptedByUser) as error:
            drill(
                plan(site.run, tools, PREEMPTION, site.owner), tools, lambda: None,
                lambda _: unknown("nobody asked"), interrupt,
            )  # fmt: skip
        assert error.value.message == "Interrupted: the drill of run 'r1' goes on."
        assert error.value.hint == "Restart the run: tpuctl watch r1"

    def test_of_a_reboot_is_left_to_the_hosts(self, world: CrashWorld) -> None:
        """Nobody takes a step of the run, and half an hour is the limit."""
        site = Site(world)
        tools = site.tools()
        began = world.time

        def sleep(seconds: float) -> None:
            world.pass_time(seconds)
            site.hosts.write(1, 0, RUNNING)

        planned = replace(plan(site.run, tools, PREEMPTION, site.owner), kind=REBOOT)
        with pytest.raises(DeadlineError) as error:
            drill(planned, tools, site.preempt, lambda _: unknown("nobody asked"), sleep)
        assert error.value.message == "Waited 1800 s for run 'r1' to be restarted."
        assert error.value.hint == "tpuctl describe r1"
        assert (world.time - began).total_seconds() >= 1800
        assert site.reports == ["reboot of n1"]


class TestMaintenance:
    """Of a TPU that comes back, or does not, on a provider in memory."""

    def drilled(self, states: list[NodeState], announced: Maintenance | None = None) -> MaintenanceReport:
        """Drill a node that is in these states, look by look, and in the last one from then on."""
        cloud = Cloud(node(addresses=("10.0.0.1", "10.0.0.2")))
        cloud.announced = {cloud.nodes["n1"].id.uid: announced} if announced else {}
        planned = plan_maintenance(cloud, None, "n1", "ada", worker=1)
        cloud.states = states
        return simulate_maintenance(cloud, planned, lambda text: None)

    @pytest.mark.usefixtures("passing_time")
    def test_is_over_once_the_node_is_ready_again(self) -> None:
        announced = Maintenance("SCHEDULED", "PENDING", "2026-01-02T00:00:00Z", "", False)
        told = self.drilled([NodeState.REPAIRING, NodeState.REPAIRING, NodeState.READY], announced)
        assert (told.node, told.state, told.maintenance, told.runs) == ("n1", "READY", announced, ())

    @pytest.mark.usefixtures("passing_time")
    def test_is_over_once_the_node_is_lost(self) -> None:
        assert self.drilled([NodeState.REPAIRING, NodeState.PREEMPTED]).state == "PREEMPTED"

    def test_of_a_node_that_stays_in_repair_has_a_limit(self, passing_time: PassingTime) -> None:
        with pytest.raises(DeadlineError, match="node 'n1' to come to rest"):
            self.drilled([NodeState.REPAIRING])
        assert 900 <= passing_time.now < 1000


Tpuctl = Callable[..., CommandResult]
JOB = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    "import os, time\n"
    "first = 1 if os.environ['TPUCTL_ATTEMPT'] == '1' else 101\n"
    "for step in range(first, 121): print('step', step, flush=True)\n"
    "time.sleep(600)\n"
)
DRILLED_STATE = 'model_checkpoint_path: "ckpt-100"\nall_model_checkpoint_paths: "ckpt-100"\n'


@pytest.fixture
def run(tpuctl: Tpuctl, simulator: RunningSimulator, bucket: Bucket) -> StoredRun:
    """The run r1, 20 steps behind its checkpoint."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--spot", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(JOB)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    stored = StoredRun(bucket, "r1")
    files = {"ckpt-100.index": "i", "ckpt-100.data-00000-of-00001": "d", "checkpoint": DRILLED_STATE}
    for name, text in files.items():
        bucket.upload(f"{stored.paths.checkpoints}{name}", [text.encode()], "text/plain")
    poll(
        lambda: True if "step 120\n" in tpuctl("logs", "r1").out else None, awaiting="step 120", timeout=120,
        backoff=Backoff(0.2, 1.0),
    )  # fmt: skip
    return stored


def check(told: dict[str, object], kind: str, outcome: str) -> None:
    assert (told["run"], told["kind"], told["outcome"], told["attempt"]) == ("r1", kind, outcome, 2)
    assert (told["saved"], told["resumed_from"], told["steps_lost"]) == ("", "ckpt-100", 20)
    assert isinstance(told["seconds_without_steps"], float)
    assert str(told["begun"]) <= str(told["restarted"]) <= str(told["next_step"])


@pytest.mark.daily
def test_a_preemption_is_recovered_and_its_cost_is_told(tpuctl: Tpuctl, run: StoredRun) -> None:
    dry = tpuctl("drill", "r1", "--dry-run", "--json").json["requests"]
    assert [(each["method"], each["body"]) for each in dry] == [("SIMULATOR", "preemption")]
    asked = tpuctl("drill", "r1")
    assert asked.code == 10
    assert run.attempt_numbers() == [1]
    result = tpuctl("drill", "r1", "--yes", "--json")
    assert result.code == 0, result.err
    check(result.json["drill"], "preemption", "preempted")
    assert result.json["drill"]["node"] == "r1-2"
    (listed,) = tpuctl("runs", "--json").json["runs"]
    assert (listed["attempt"], listed["steps_lost"]) == (2, 20)
    assert "attempt 2, 20 steps lost" in tpuctl("runs").out
    facts = {fact["name"]: fact["value"] for fact in tpuctl("describe", "r1", "--json").json["run"]["facts"]}
    assert (facts["steps lost"], facts["gap"].endswith("on no TPU")) == ("20", True)


def test_a_reboot_is_left_to_the_hosts(tpuctl: Tpuctl, run: StoredRun, simulator: RunningSimulator) -> None:
    result = tpuctl("drill", "r1", "--reboot", "--notice", "0.5", "--yes")
    assert result.code == 0, result.err
    assert "attempt 2 on n1 in europe-west4-a" in result.out
    assert "steps lost        20\n" in result.out
    assert [node.name.rpartition("/")[2] for node in simulator.world.nodes.all()] == ["n1"]


def test_a_run_that_a_drill_would_end_is_refused(tpuctl: Tpuctl, node: str) -> None:
    Path("job.py").write_text(JOB)
    assert tpuctl("submit", "job.py", "--name", "r1", "--restarts", "0", "--tpu", node).code == 0
    poll(
        lambda: True if "running" in tpuctl("runs").out else None, awaiting="the script", timeout=120,
        backoff=Backoff(0.2, 1.0),
    )  # fmt: skip
    refused = tpuctl("drill", "r1", "--yes")
    assert (refused.code, "has no restarts: a drill would end it" in refused.err) == (4, True), refused.err
    assert tpuctl("drill", node, "--reboot", "--yes").code == 2
