"""A drill on a provider in memory: what is planned, what is noted, and what each run did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.passing_time import PassingTime
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU
from tpuctl import clock, runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError, InterruptedByUser, StateError, UsageError
from tpuctl.flows.runs.drill import DrillPlan, DrillReport, drill, plan_drill, requests
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import (
    Change,
    HttpRequest,
    Maintenance,
    Node,
    NodeId,
    NodeState,
    SimulateMaintenance,
    owner_label,
)
from tpuctl.runs import Run, Verdict, encode
from tpuctl.worker.records import FINISHED, RUNNING, WorkerStatus
from tpuctl.worker.records import encode as encode_word

IDENTITY = NodeId("cloud-tpu", TPU.project, TPU.zone, TPU.name, TPU.uid)
ANNOUNCED = Maintenance("SCHEDULED", "PENDING", "2026-01-02T00:00:00Z", "", False)


def mine(state: NodeState = NodeState.READY, **fields: Any) -> Node:
    return node(state=state, id=IDENTITY, addresses=("10.0.0.1", "10.0.0.2"), **fields)


class Cloud(MemoryProvider):
    """A node that changes as the test says, look by look."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__(*nodes)
        self.states: list[NodeState | None] = []
        """After the next looks."""
        self.begun: list[Change] = []

    def begin(self, change: Change) -> Operation:
        self.begun.append(change)
        return Operation("Node 'n1'", lambda: True)

    def get_node(self, node: NodeId) -> Node:
        if self.states:
            state = self.states.pop(0)
            if state is None:
                self.nodes.clear()
            else:
                self.nodes["n1"] = mine(state)
        return super().get_node(node)


class Site:
    """Runs on the node n1."""

    def __init__(self) -> None:
        self.cloud = Cloud(mine())
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.said: list[str] = []

    def submit(self, name: str, tpu: runs.Tpu = TPU) -> None:
        run = StoredRun(self.bucket, name)
        run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0, 1), tpu=tpu))

    def say(self, name: str, *statuses: WorkerStatus) -> None:
        for worker, status in enumerate(statuses):
            place = StoredRun(self.bucket, name).paths.status(1, worker)
            self.memory.put(place, encode_word(replace(status, worker=worker)))

    def plan(self, worker: int | None = 0, **options: Any) -> DrillPlan:
        return plan_drill(self.cloud, self.bucket, "n1", "ada", worker=worker, **options)

    def drill(self, worker: int | None = 0, preempt: Callable[[], None] = lambda: None) -> DrillReport:
        return drill(self.cloud, self.plan(worker), preempt, clock.now, self.said.append)


@pytest.fixture
def site(passing_time: PassingTime) -> Site:
    """A READY node of Ada's with two workers; waiting takes no time."""
    return Site()


class TestPlan:
    def test_a_maintenance_of_a_worker_is_one_request(self, site: Site) -> None:
        plan = site.plan(1)
        assert plan.change == SimulateMaintenance(IDENTITY, 1)
        assert requests(site.cloud, plan) == [HttpRequest("SimulateMaintenance", "n1")]
        assert site.plan().change == SimulateMaintenance(IDENTITY, 0)

    def test_a_preemption_is_none(self, site: Site) -> None:
        plan = site.plan(None)
        assert (plan.change, requests(site.cloud, plan)) == (None, [])

    @pytest.mark.parametrize("worker", [-1, 2])
    def test_a_worker_that_it_does_not_have_is_refused(self, site: Site, worker: int) -> None:
        with pytest.raises(UsageError) as error:
            site.plan(worker)
        assert error.value.message == f"Node 'n1' has no worker {worker}."
        assert error.value.hint == "It has 2, from 0."

    @pytest.mark.parametrize(
        ("labels", "metadata", "whose"),
        [
            ({"managed-by": "tpuctl", "tpuctl-owner": owner_label("bob")}, {"tpuctl-owner": "bob"}, "bob"),
            ({}, {}, "-"),
        ],
    )
    def test_anothers_node_is_left_alone_unless_its_owner_is_named(
        self, site: Site, labels: dict[str, str], metadata: dict[str, str], whose: str
    ) -> None:
        site.cloud.nodes["n1"] = mine(labels=labels, metadata=metadata)
        for wrong in ("", "eve"):
            with pytest.raises(StateError, match="Node 'n1' is not yours, and a drill can end") as error:
                site.plan(whose=wrong)
            assert (
                error.value.hint == "Say whose it is with --owner OWNER; 'tpuctl ls --all-users' shows that."
            )
        assert site.plan(whose=whose).node.name == "n1"

    def test_the_runs_there_that_have_not_ended_are_meant(self, site: Site) -> None:
        for name in ("first", "ended", "second"):
            site.submit(name)
        site.submit("elsewhere", msgspec.structs.replace(TPU, uid="8"))
        verdict = Verdict("ended", runs.FAILED, 1, CREATED, "because", basis=runs.BY_WORKERS)
        site.memory.put("runs/ended/verdict.json", encode(verdict))
        site.memory.put(f"{NodePaths.of(TPU.id).runs}ghost/1.json", b"{}")
        assert [run.name for run in site.plan().runs] == ["first", "second"]
        assert plan_drill(site.cloud, None, "n1", "ada").runs == ()


class TestMaintenance:
    def test_the_node_and_its_announcement_are_noted(self, site: Site) -> None:
        site.cloud.announced = {TPU.uid: ANNOUNCED}
        site.cloud.states = [NodeState.READY, NodeState.REPAIRING, NodeState.REPAIRING, NodeState.READY]
        report = site.drill(1)
        assert site.cloud.begun == [SimulateMaintenance(IDENTITY, 1)]
        assert (report.node, report.zone, report.state, report.maintenance) == (
            "n1", TPU.zone, NodeState.READY, ANNOUNCED,
        )  # fmt: skip
        assert [moment.event for moment in report.moments] == site.said == [
            "n1 is READY", "simulating a maintenance of worker 1", "n1 is REPAIRING", "n1 is READY",
            "SCHEDULED maintenance is PENDING, from 2026-01-02T00:00:00Z",
        ]  # fmt: skip
        assert report.runs == ()

    def test_a_run_that_sends_a_heartbeat_has_reacted(self, site: Site) -> None:
        site.submit("r1")
        running = replace(STATUS, state=RUNNING, pid=7)
        site.say("r1", running, running)
        looks = iter(range(100))

        def beat() -> None:
            if next(looks) > 40:
                site.say("r1", *[replace(running, heartbeat="2026-01-01T12:00:10Z")] * 2)

        plan = site.plan()
        site.memory.meanwhile = beat
        report = drill(site.cloud, plan, lambda: None, clock.now, site.said.append)
        (reaction,) = report.runs
        assert (reaction.run, reaction.before, reaction.after) == ("r1", "running", "running")
        assert reaction.evidence == "every worker has sent a heartbeat since"
        assert "waiting for what r1 does" in site.said
        assert (reaction.checkpoint_before, reaction.checkpoint_after) == ("", "")

    def test_one_that_stays_silent_is_waited_for_three_minutes(
        self, site: Site, passing_time: PassingTime
    ) -> None:
        site.submit("r1")
        running = replace(STATUS, state=RUNNING, pid=7)
        site.say("r1", running, replace(running, state=FINISHED, exit_code=0))
        (reaction,) = site.drill().runs
        assert reaction.evidence == "not every worker has sent a heartbeat since"
        assert 180 <= passing_time.now < 220
        assert any("the runs to react" in line for line in site.said)

    def test_one_that_ends_says_why(self, site: Site) -> None:
        site.submit("r1")
        site.memory.put("runs/r1/checkpoints/model-7.pt", b"x")
        stopped = replace(STATUS, state=FINISHED, stopped="SIGTERM", cause="maintenance", exit_code=143)
        plan = site.plan()
        site.say("r1", stopped, stopped)
        (reaction,) = drill(site.cloud, plan, lambda: None, clock.now, site.said.append).runs
        assert reaction.after == "maintenance"
        assert "announced its maintenance" in reaction.evidence
        assert (reaction.checkpoint_before, reaction.checkpoint_after) == ("model-7.pt", "model-7.pt")

    def test_one_that_cannot_be_read_says_so(self, site: Site) -> None:
        site.submit("r1")
        plan = site.plan()
        site.memory.put("runs/r1/verdict.json", b"{")
        (reaction,) = drill(site.cloud, plan, lambda: None, clock.now, site.said.append).runs
        assert reaction.evidence.startswith("runs/r1/verdict.json ")
        assert reaction.after == "unknown"

    def test_a_node_that_does_not_come_to_rest_is_named(self, site: Site, passing_time: PassingTime) -> None:
        site.cloud.nodes["n1"] = mine()
        plan = site.plan()
        site.cloud.nodes["n1"] = mine(NodeState.REPAIRING)
        with pytest.raises(DeadlineError, match="node 'n1' to come to rest"):
            drill(site.cloud, plan, lambda: None, clock.now, site.said.append)
        assert 900 <= passing_time.now < 1000


class TestPreemption:
    @pytest.mark.parametrize("end", [NodeState.PREEMPTED, None])
    def test_it_is_played_and_the_node_is_lost(self, site: Site, end: NodeState | None) -> None:
        played: list[bool] = []
        site.cloud.states = [NodeState.READY, NodeState.READY, end]
        report = site.drill(None, lambda: played.append(True))
        assert (played, site.cloud.begun, report.maintenance) == ([True], [], None)
        assert report.state == (end or NodeState.GONE)
        assert site.said == ["n1 is READY", "preempting n1", f"n1 is {report.state}"]

    def test_ctrl_c_leaves_what_was_begun(self, site: Site) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(InterruptedByUser) as error:
            site.drill(None, interrupt)
        assert error.value.message == "Interrupted: the drill of 'n1' goes on."
