"""Random calls through the official client, checked against the tables of states after each of them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import grpc
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.sim.tpu.api import Api
from tests.sim.tpu.recorded_hosts import ManualTime
from tpuctl.sim.faults import grpc_fault
from tpuctl.sim.settings import Profile
from tpuctl.sim.world import ApiError
from tpuctl.sim.world.state import LOST, NODE_TRANSITIONS, QUEUED_RESOURCE_NEXT, SERVING

ZONE = "europe-west4-a"
PARENT = f"projects/rehearsal/locations/{ZONE}"
QUOTA = ("rehearsal", ZONE, "TPUV3sPerProjectPerZoneForTPUAPI")
LIMIT = 48
CAPACITY = 4
DELAYS = {
    "create": 4,
    "delete": 2,
    "update": 1,
    "start": 2,
    "stop": 2,
    "failure": 1,
    "accept": 1,
    "queue": 1,
    "retry": 3,
    "suspend": 1,
    "dequeue": 1,
}
FAILURES = {"stockout": 8, "broken": 13}

NODE_NEXT: dict[str, set[str]] = {
    # not in the tables of transitions: cancelled and failed creates, preemptions
    "": {"CREATING"},
    "CREATING": {"READY", "DELETING", "DELETED", "PREEMPTED"},
    "READY": {"STOPPING", "DELETING", "REPAIRING", "PREEMPTED", "TERMINATED"},
    "STOPPING": {"STOPPED", "READY"},
    "STOPPED": {"STARTING", "DELETING"},
    "STARTING": {"READY", "STOPPED"},
    "REPAIRING": {"READY", "DELETING", "PREEMPTED"},
    "PREEMPTED": {"DELETING"},
    "TERMINATED": {"DELETING"},
    "DELETING": {"DELETED"},
    "DELETED": {"CREATING"},
}

ids = st.sampled_from(["a", "b", "c"])
tiers = st.sampled_from([{}, {"spot": True}])


def test_the_table_of_nodes_here_has_every_state_of_the_worlds() -> None:
    states = {
        state for transition in NODE_TRANSITIONS.values() for state in (transition.during, transition.after)
    } - {None}
    assert states <= set(NODE_NEXT)


class Calls(RuleBasedStateMachine):
    """Calls of all kinds on a few names, with little room and little quota."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.time = ManualTime()
        pace = Profile(DELAYS, clock=self.time.clock, sleep=self.time.sleep)
        self.api = Api(Path(self.folder.name) / "world", pace)
        capacity = self.api.world.capacity
        capacity.quotas.limits[QUOTA] = LIMIT
        capacity.limits[ZONE, "v3-8"] = CAPACITY
        self.channel = grpc.insecure_channel(self.api.grpc_address, options=[("grpc.enable_http_proxy", 0)])
        self.client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=self.channel))

    def teardown(self) -> None:
        if not hasattr(self, "api"):
            return
        for queued in self.api.world.queued_resources.all():
            self.call(self.client.delete_queued_resource, {"name": queued.name, "force": True})
        self.wait()
        assert not self.api.world.queued_resources.all()
        assert not [
            node for node in self.api.world.nodes.all() if node.queued_resource and node.state not in LOST
        ]
        for node in self.api.world.nodes.all():
            self.client.delete_node(name=node.name)
        self.wait()
        assert self.api.world.idle()
        assert not self.api.hosts.up
        self.channel.close()
        self.api.close()
        self.folder.cleanup()

    @rule(name=ids, tier=tiers, accelerator=st.sampled_from(["v3-8", "v3-32"]))
    def create_node(self, name: str, tier: dict[str, bool], accelerator: str) -> None:
        node = tpu_v2.Node(
            accelerator_type=accelerator, runtime_version="tpu-ubuntu2204-base", scheduling_config=tier
        )
        self.call(self.client.create_node, {"parent": PARENT, "node_id": name, "node": node})

    @rule(name=ids, call=st.sampled_from(["delete_node", "stop_node", "start_node"]))
    def change_node(self, name: str, call: str) -> None:
        self.call(getattr(self.client, call), {"name": f"{PARENT}/nodes/{name}"})

    @rule(name=ids, label=st.sampled_from(["x", "y"]))
    def update_node(self, name: str, label: str) -> None:
        node = tpu_v2.Node(name=f"{PARENT}/nodes/{name}", labels={"l": label})
        self.call(self.client.update_node, {"node": node, "update_mask": {"paths": ["labels"]}})

    @rule(name=ids, node=st.sampled_from(["a", "b", "c", ""]), spot=st.booleans(), short=st.booleans())
    def queue(self, name: str, node: str, spot: bool, short: bool) -> None:
        names = {"node_id": node} if node else {"multislice_params": {"node_count": 2}}
        fields = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
        queued = tpu_v2.QueuedResource(tpu={"node_spec": [{"parent": PARENT, "node": fields, **names}]})
        if spot:
            queued.spot = {}
        if short:
            queued.queueing_policy = {"valid_until_duration": "12s"}
        request = {"parent": PARENT, "queued_resource_id": name, "queued_resource": queued}
        self.call(self.client.create_queued_resource, request)

    @rule(name=ids, force=st.booleans())
    def delete_queued(self, name: str, force: bool) -> None:
        request = {"name": f"{PARENT}/queuedResources/{name}", "force": force}
        self.call(self.client.delete_queued_resource, request)

    @rule(name=ids)
    def reset(self, name: str) -> None:
        self.call(self.client.reset_queued_resource, {"name": f"{PARENT}/queuedResources/{name}"})

    @rule(which=st.integers(0, 5))
    def preempt(self, which: int) -> None:
        nodes = sorted(self.api.world.nodes.all(), key=lambda node: node.name)
        if which < len(nodes):
            with contextlib.suppress(ApiError):  # it is not up
                self.api.run(self.api.world.preempt(nodes[which].name))

    @rule(failure=st.sampled_from(sorted(FAILURES)))
    def fail_the_next_create(self, failure: str) -> None:
        self.api.faults.add(grpc_fault("tpu.CreateNode", FAILURES[failure], failure, count=1, late=True))

    @rule(which=st.integers(0, 9))
    def cancel(self, which: int) -> None:
        operations = self.client.list_operations({"name": PARENT}).operations
        if which < len(operations):
            self.client.cancel_operation({"name": operations[which].name})

    @rule(seconds=st.integers(1, 4))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.api.run(self.time.advance(1))
            self.api.run(_settle())

    @rule()
    def wait(self) -> None:
        """Until nothing more happens by itself."""
        for _ in range(60):
            self.pass_time(1)
            if self.at_rest():
                break
        assert self.at_rest()
        for queued in self.api.world.queued_resources.all():
            own = [node for node in self.api.world.nodes.all() if node.queued_resource == queued.name]
            serving = [node.name for node in own if node.state in SERVING]
            assert (queued.state == "ACTIVE") == (set(serving) == set(queued.nodes)), queued
            assert queued.state == "ACTIVE" or not serving, queued

    @invariant()
    def the_tables_hold(self) -> None:
        if hasattr(self, "api"):
            self.api.run(self.check())

    async def check(self) -> None:
        """On the world's own loop, so that nothing moves while it looks."""
        world = self.api.world
        for kind, table, first in (("/nodes/", NODE_NEXT, ""), ("/queuedResources/", QUEUE_TABLE, "")):
            last: dict[str, str] = {}
            for event in world.events:
                if event.kind == "transition" and kind in event.resource:
                    before = last.get(event.resource, first)
                    assert event.what in table[before], (event.resource, before, event.what)
                    last[event.resource] = event.what
        addresses = [address for node in world.nodes.all() for address in node.addresses]
        assert len(addresses) == len(set(addresses))
        assert 0 <= world.capacity.quotas.used(QUOTA) <= LIMIT
        assert 0 <= world.capacity.used(ZONE, "v3-8") <= CAPACITY
        for node in world.nodes.all():
            assert (world.operations.running_on(node.name) is not None) >= (node.state == "CREATING")
        await asyncio.sleep(0)

    def at_rest(self) -> bool:
        world = self.api.world
        waiting = {"ACTIVE", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED"}
        resting = all(queued.state in waiting for queued in world.queued_resources.all())
        return resting and not world.operations.running()

    def call(self, method: Any, request: dict[str, Any]) -> None:
        """Refusals are right, errors of the server are not."""
        with contextlib.suppress(exceptions.ClientError):
            method(request=request)


QUEUE_TABLE: dict[str, set[str]] = {
    **{state: set(following) for state, following in QUEUED_RESOURCE_NEXT.items()},
    "": {"CREATING"},
    "DELETING": {"DELETED"},
    "DELETED": {"CREATING"},
}


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_random_calls_never_leave_the_tables() -> None:
    run_state_machine_as_test(
        Calls,
        settings=settings(
            max_examples=150,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
