"""How often a run is started again, and on what machine: who decides, and what is refused.

Whether the hosts of a run resume it by themselves, and how often.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.records import CREATED
from tpuctl import runs
from tpuctl.errors import ConfigError, UsageError
from tpuctl.flows.runs.submission.restart_policy import (
    RestartRequest,
    machine_like,
    moved,
    policy,
    users_metadata,
)
from tpuctl.flows.runs.submission.resumption import not_kept, note, obstacle, restarts_left
from tpuctl.job_header import ToolTable
from tpuctl.nodes import DataDisk, Node, NodeId, NodeSpec
from tpuctl.recovery import Machine, Restarts
from tpuctl.runs import NOT_STORED, Run, Verdict

SPOT, PLAIN = node(spot=True), node()
EU = "europe-west4-a"
CONFIGURED = RestartRequest("1", "2", is_configured=True)
SUBNETWORKS = {"us-central1": "lab-us", "europe-west4": "lab-eu", "asia-east1": "lab-asia"}
GITHUB = "ghp" + "_" + "a1B2" * 9


def in_zone(zone: str, **spec: object) -> Node:
    return node(
        id=NodeId("memory", "p", zone, "n1", "uid-0"), spec=NodeSpec(**spec),  # type: ignore[arg-type]
    )  # fmt: skip


class TestPolicy:
    @pytest.mark.parametrize(
        ("made", "request_", "table", "loss", "failure"),
        [
            (PLAIN, RestartRequest(), ToolTable(), 0, 0),
            (SPOT, RestartRequest(), ToolTable(), None, 0),
            (SPOT, RestartRequest("0", "2"), ToolTable(), 0, 2),
            (PLAIN, RestartRequest("unlimited"), ToolTable(), None, 0),
            (PLAIN, RestartRequest("9999", "9999"), ToolTable(), 9999, 9999),
            (PLAIN, RestartRequest(), ToolTable(restarts=3, restarts_on_failure=4), 3, 4),
            (SPOT, RestartRequest(), ToolTable(restarts=0), 0, 0),
            (PLAIN, RestartRequest(), ToolTable(restarts="unlimited"), None, 0),
            # an option overrules the header, which overrules the configuration
            (PLAIN, RestartRequest("1", "2"), ToolTable(restarts=3, restarts_on_failure=4), 1, 2),
            (PLAIN, CONFIGURED, ToolTable(restarts=3, restarts_on_failure=4), 3, 4),
            (PLAIN, CONFIGURED, ToolTable(restarts=3), 3, 2),
            (PLAIN, RestartRequest("", "2"), ToolTable(restarts=3), 3, 2),
        ],
    )  # fmt: skip
    def test_who_says_how_often(
        self, made: Node, request_: RestartRequest, table: ToolTable, loss: int | None, failure: int
    ) -> None:
        assert policy(request_, table, made) == Restarts(after_loss=loss, after_failure=failure)

    @pytest.mark.parametrize("text", ["-1", "1.5", "ten", "10000", "²", "Unlimited", " 1"])
    def test_what_is_no_number_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match=f"^--restarts {text} is no number of restarts") as error:
            policy(RestartRequest(text), ToolTable(), PLAIN)
        assert error.value.hint == "For instance --restarts 3."

    def test_a_script_that_fails_is_not_started_again_without_end(self) -> None:
        with pytest.raises(UsageError, match=r"^--restarts-on-failure unlimited is no number"):
            policy(RestartRequest("1", "unlimited"), ToolTable(), PLAIN)


class TestMachine:
    def test_it_is_one_like_the_node(self) -> None:
        spec = NodeSpec(
            network="lab", subnetwork="lab-eu", external_ips=False, service_account="own@p", scopes=("a",),
            tags=("t",), topology="2x4", secure_boot=True, reserved=True,
            data_disks=(DataDisk("projects/p/zones/z/disks/photos", read_only=True),),
        )  # fmt: skip
        made = replace(SPOT, spec=spec, metadata={"tpuctl-ttl": "3600s", "tpuctl-idle": "60s"})
        assert machine_like(made, RestartRequest(max_price="2.5"), "jax", "ada") == Machine(
            accelerator="v3-8", zones=("us-central1-b",), spot=True, runtime="image-2", owner="ada",
            framework="jax", max_price="2.5", network="lab", subnetwork="lab-eu", external_ips=False,
            service_account="own@p", scopes=("a",), tags=("t",), topology="2x4", secure_boot=True,
            reserved=True, data_disks=(DataDisk("projects/p/zones/z/disks/photos", read_only=True),),
            ttl=3600, idle=60,
        )  # fmt: skip

    def test_labels_and_metadata_of_tpuctl_are_given_anew(self) -> None:
        spec = NodeSpec(metadata={"color": "blue", "tpuctl-owner": "ada"})
        made = replace(PLAIN, labels={**PLAIN.labels, "team": "vision"}, spec=spec)
        machine = machine_like(made, RestartRequest(), "jax", "ada")
        assert (machine.labels, machine.metadata) == ({"team": "vision"}, {"color": "blue"})
        assert users_metadata(made) == {"color": "blue"}

    def test_what_looks_like_a_secret_is_not_recorded(self) -> None:
        spec = NodeSpec(
            metadata={"color": "blue", "db-password": "x7", "note": f"use {GITHUB}"},
            startup_script=f"#!/bin/sh\nexport TOKEN={GITHUB}\n",
        )
        machine = machine_like(replace(PLAIN, spec=spec), RestartRequest(), "jax", "ada")
        assert machine.metadata == {"color": "blue", "db-password": NOT_STORED, "note": NOT_STORED}
        assert machine.startup_script == NOT_STORED
        plain = NodeSpec(startup_script="#!/bin/sh\necho ready\n")
        kept = machine_like(replace(PLAIN, spec=plain), RestartRequest(), "jax", "ada")
        assert kept.startup_script == "#!/bin/sh\necho ready\n"

    @pytest.mark.parametrize("text", ["soon", "", "-1s"])
    def test_a_length_that_is_none_is_no_length(self, text: str) -> None:
        made = replace(PLAIN, metadata={"tpuctl-ttl": text})
        machine = machine_like(made, RestartRequest(), "jax", "ada")
        assert (machine.ttl, machine.idle) == (0, 0)

    def test_another_zone_is_tried_after_that_of_the_node(self) -> None:
        request = RestartRequest(zones=(EU, "us-central1-b"))
        assert machine_like(PLAIN, request, "jax", "ada").zones == ("us-central1-b", EU)

    def test_a_disk_keeps_it_in_its_zone(self) -> None:
        disks = (DataDisk("projects/p/zones/us-central1-b/disks/photos"),)
        made = replace(PLAIN, spec=NodeSpec(data_disks=disks))
        assert machine_like(made, RestartRequest(zones=("us-central1-b",)), "jax", "ada").data_disks
        with pytest.raises(UsageError) as error:
            machine_like(made, RestartRequest(zones=(EU,)), "jax", "ada")
        assert error.value.message == f"'n1' has disk 'photos', which a TPU in {EU} cannot have."
        assert error.value.hint == (
            "Leave out --restart-zone: a disk is attached in its own zone, us-central1-b, only."
        )

    def test_one_that_was_made_elsewhere_is_looked_for_there_first(self) -> None:
        machine = machine_like(in_zone(EU), RestartRequest(zones=("us-central1-b",)), "jax", "ada")
        assert machine.zones == (EU, "us-central1-b")
        other = moved(machine, replace(PLAIN, runtime="image-9", queued_resource="q1"))
        assert other
        assert (other.zones, other.runtime, other.queued) == (("us-central1-b", EU), "image-9", True)
        assert moved(None, PLAIN) is None


class TestSubnetworks:
    def machine(self, made: Node, *zones: str, configured: dict[str, str] | None = None) -> Machine:
        table = SUBNETWORKS if configured is None else configured
        return machine_like(made, RestartRequest(zones=zones, subnetworks=table), "jax", "ada")

    def test_in_one_region_it_has_that_of_the_node(self) -> None:
        made = in_zone("us-central1-b", subnetwork="own")
        assert self.machine(made).subnetworks == {}
        assert self.machine(made, "us-central1-a").subnetworks == {}

    def test_in_several_each_region_has_its_own_and_the_nodes_region_that_of_the_node(self) -> None:
        made = in_zone("us-central1-b", subnetwork="own")
        assert self.machine(made, EU).subnetworks == {"us-central1": "own", "europe-west4": "lab-eu"}
        assert self.machine(in_zone("us-central1-b"), EU).subnetworks == {
            "us-central1": "lab-us", "europe-west4": "lab-eu",
        }  # fmt: skip

    def test_a_region_without_one_is_refused_where_it_was_named_and_else_left_out(self) -> None:
        made, only = in_zone("us-central1-b", subnetwork="own"), {"us-central1": "lab-us"}
        with pytest.raises(ConfigError, match="europe-west4"):
            self.machine(made, EU, configured={**only, "asia-east1": "lab-asia"})
        zones = self.machine(made, "any", configured=only).zones
        assert zones
        assert all(zone.startswith("us-central1-") for zone in zones)
        everywhere = self.machine(made, "any", configured={}).zones
        assert EU in everywhere


MASKED = "hosts do not keep the secret in its arguments or commands"
MACHINE = Machine("v3-8", ("us-central1-b",), False, "image-1", "ada")
RUN = Run(
    "r1", CREATED, "ada@laptop", "job.py", ("--rate", "1"), "0" * 64, "jax", "v3-8", ("numpy",), {},
    restarts=Restarts(after_loss=2), machine=MACHINE, not_kept=(),
)  # fmt: skip


def changed(**fields: object) -> Run:
    return msgspec.structs.replace(RUN, **fields)


def test_a_secret_and_what_looks_like_one_is_not_kept() -> None:
    variables = {"RATE": "1", "API_KEY": "x7", "NAME": "ada", "MINE": "2"}
    assert not_kept(variables, ["MINE"]) == ("API_KEY", "MINE")
    assert not_kept({"RATE": "1"}, []) == ()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"not_kept": None}, "an earlier version of tpuctl has submitted it"),
        ({"not_kept": ("A",)}, "hosts do not keep the value of A"),
        ({"not_kept": ("A", "B")}, "hosts do not keep the values of A, B"),
        ({"arguments": ("--key=***",)}, MASKED),
        ({"dependencies": ("x @ https://***@h/x",)}, MASKED),
        ({"setup": "login ***"}, MASKED),
    ],
)  # fmt: skip
def test_what_keeps_hosts_from_it(fields: dict[str, object], reason: str) -> None:
    run = changed(**fields)
    assert obstacle(run) == reason
    assert restarts_left(run, []) == (0 if reason else 2)
    sentence = "After a reboot of its TPU this run resumes only while somebody watches it"
    assert note(run) == ([f"{sentence}: {reason}."] if reason else [])


@pytest.mark.parametrize(
    ("outcomes", "left"),
    [
        ((), 2), ((runs.LOST,), 1), ((runs.PREEMPTED, runs.MAINTENANCE), 0), ((runs.LOST,) * 5, 0),
        ((runs.FAILED, runs.STOPPED), 2),
    ],
)  # fmt: skip
def test_losses_count_against_it_and_failures_do_not(outcomes: tuple[str, ...], left: int) -> None:
    verdicts = [Verdict("r1", outcome, 1, CREATED, "because") for outcome in outcomes]
    assert restarts_left(RUN, verdicts) == left
    assert restarts_left(changed(restarts=Restarts(after_loss=None)), verdicts) == -1
    assert restarts_left(changed(restarts=Restarts(after_loss=0, after_failure=3)), verdicts) == 0


def test_nothing_is_said_of_a_run_that_is_not_started_again() -> None:
    for fields in ({"machine": None}, {"restarts": Restarts(after_loss=0, after_failure=3)}):
        assert note(changed(not_kept=("A",), **fields)) == []
        assert restarts_left(changed(**fields), []) == 0
