"""The keeper as it runs on a host, started by the startup script of a node that `up` made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.host.keeper.site import Command, Keepers
from tests.host.worker.host import ssh_environment
from tests.sim.guest.test_chips import holder
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.options import UpOptions, creation
from tpuctl.host.keeper.records import moment
from tpuctl.nodes import StartNode, StopNode, UpdateNode

HOUR = 3600
LOOP = "import time\nprint('started', flush=True)\ntime.sleep(600)\n"


def up(tpuctl: Command, *options: str) -> None:
    created = tpuctl("up", "v3-8", "--name", "n1", *options, "--yes")
    assert created.code == 0, created.err


def kill(word: bytes, home: Path) -> int:
    """Kill the programs of a host that have this word in an argument, and return how many they were."""
    killed = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # of a process that ends meanwhile, or is another user's
            words, folder = path.read_bytes(), (path.parent / "cwd").readlink()
            if word in words and (os.fsencode(home) in words or folder.is_relative_to(home)):
                os.kill(int(path.parent.name), signal.SIGKILL)
                killed += 1
    return killed


class TestExpiry:
    def test_it_deletes_the_node_when_its_time_is_over(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--ttl", "8h")
        keepers.wait(lambda: keepers.note().get("expires"), "the keeper")
        keepers.advance(8 * HOUR - 120)
        assert keepers.wait_for_look()["error"] == ""
        assert keepers.names() == ["n1"]
        keepers.advance(200)
        keepers.wait_for_end()
        (record,) = keepers.records()
        assert (record["reason"], record["node"]) == ("expired", "n1")
        assert moment(record["at"]) >= moment(record["expires"])
        (stored,) = keepers.bucket.objects("nodes/")
        assert stored.name == (
            f"nodes/sim-project.europe-west4-a.n1.{record['uid']}/keeper/expired-{record['expires']}.json"
        )

    def test_an_extension_counts_while_it_runs(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--ttl", "1h")
        keepers.wait(lambda: keepers.note().get("expires"), "the keeper")
        extended = tpuctl("extend", "n1", "3h", "--json").json["expires"]
        keepers.wait(lambda: keepers.note()["expires"] == extended, "the new expiry")
        keepers.advance(2 * HOUR)
        keepers.wait_for_look()
        assert keepers.names() == ["n1"]
        keepers.advance(2 * HOUR + 60)
        keepers.wait_for_end()

    def test_after_a_reboot_it_goes_on(self, keepers: Keepers, tpuctl: Command, cloud: Cloud) -> None:
        up(tpuctl, "--ttl", "1h")
        (node,) = cloud.provider.list_nodes().nodes
        for change in (StopNode(node.id), StartNode(node.id)):
            cloud.provider.begin(change).wait("to be changed", 60)
        keepers.wait_for_look()
        keepers.advance(HOUR)
        keepers.wait_for_end()

    def test_a_keeper_that_is_killed_starts_again(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--ttl", "1h")
        keepers.wait(lambda: len(keepers.processes()) == 1, "the keeper")
        (victim,) = keepers.processes()
        os.kill(victim, signal.SIGKILL)
        keepers.wait(lambda: set(keepers.processes()) - {victim}, "another keeper")
        keepers.advance(HOUR)
        keepers.wait_for_end()

    def test_of_two_keepers_the_second_leaves(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--ttl", "1h")
        keepers.wait_for_look()  # it has the lock
        second = subprocess.run(
            ["python3", "-I", "keeper.zip", "1"],
            cwd=keepers.disk().view / "run/tpuctl-keeper",
            env=ssh_environment(),
            timeout=60,
            check=False,
        )
        assert second.returncode == 0
        assert len(keepers.processes()) == 1

    def test_a_queued_resource_is_deleted_with_its_node(
        self, keepers: Keepers, cloud: Cloud, simulator, tpuctl: Command
    ) -> None:
        options = UpOptions(
            "v3-8", "q1", "ada", framework="jax",
            queued=True, lifetime=Lifetime(ttl=HOUR), bucket=keepers.bucket.name,
        )  # fmt: skip
        zone = "europe-west4-a"
        change = creation(cloud.provider, options, zone, "tpu-ubuntu2204-base", cloud.ssh.login_key())
        cloud.provider.begin(change).wait("to be created", 60)
        keepers.wait(lambda: keepers.note(node="q1").get("expires"), "the keeper")
        keepers.advance(HOUR)
        keepers.wait_for_end()
        keepers.wait(lambda: not simulator.world.queued_resources.all(), "the end of the queue")
        assert [record["queued_resource"] for record in keepers.records()] == ["q1"]

    def test_a_run_that_it_ends_says_why(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--ttl", "1h")
        Path("job.py").write_text(LOOP)
        assert tpuctl("submit", "job.py", "--name", "r1").code == 0
        keepers.wait_for_look()
        keepers.advance(HOUR)
        keepers.wait_for_end()
        listed = tpuctl("runs", "--json")
        assert [run["state"] for run in listed.json["runs"]] == ["stopped"]
        verdict = json.loads(keepers.bucket.read("runs/r1/verdict.json"))
        assert (
            verdict["evidence"]
            == "the node was deleted: its keeper recorded the end of its time to live (--ttl or --max-cost)"
        )

    def test_the_same_up_says_that_it_changes_no_end(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--ttl", "1h")
        again = tpuctl("up", "v3-8", "--name", "n1", "--ttl", "2h", "--yes")
        assert "'n1' exists: --ttl changes nothing on it." in again.err
        assert "changes nothing" not in tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes").err


class TestTrouble:
    def test_an_api_that_is_away_is_named_and_tried_again(
        self, keepers: Keepers, tpuctl: Command, simulator
    ) -> None:
        up(tpuctl, "--ttl", "1h")
        keepers.wait(lambda: keepers.note().get("expires"), "the keeper")
        fault = simulator.faults.add("unavailable", method="GetNode")
        keepers.advance(HOUR)
        keepers.wait(lambda: keepers.note()["error"], "the error")
        assert "GET projects/sim-project/locations/europe-west4-a/nodes/n1" in keepers.note()["error"]
        assert keepers.records() == []
        simulator.faults.remove(fault.id)
        keepers.wait_for_end()

    def test_an_emptied_home_a_full_disk_and_a_bucket_that_refuses_stop_nothing(
        self, keepers: Keepers, tpuctl: Command, simulator
    ) -> None:
        """Together, on a host that has lost its network for a while, and whose keeper is killed."""
        up(tpuctl, "--ttl", "1h")
        keepers.wait_for_look()
        shutil.rmtree(keepers.disk().home / ".tpuctl", ignore_errors=True)
        lost = simulator.faults.add("network-loss", node="n1")
        keepers.wait(lambda: "does not answer" in keepers.log(), "the loss")
        simulator.faults.add("disk-full", node="n1")  # its log takes nothing any more
        simulator.faults.add("gcs-error", status="403", method="storage.objects.create")
        (victim,) = keepers.processes()
        os.kill(victim, signal.SIGKILL)
        keepers.advance(HOUR)
        simulator.faults.remove(lost.id)
        keepers.wait_for_end()
        assert keepers.records() == []
        told = tpuctl("why", "n1", "--json").json["events"]
        assert "its time to live was over; its keeper left no record" in [event["text"] for event in told]

    def test_a_refused_permission_is_named_and_the_node_stays(
        self, keepers: Keepers, tpuctl: Command, simulator
    ) -> None:
        up(tpuctl, "--ttl", "1h")
        keepers.wait(lambda: keepers.note().get("expires"), "the keeper")
        fault = simulator.faults.add("permission", method="DeleteNode")
        keepers.advance(HOUR)
        keepers.wait(lambda: "tpu.nodes.delete" in keepers.note()["error"], "the permission")
        assert keepers.names() == ["n1"]
        simulator.faults.remove(fault.id)
        keepers.wait_for_end()
        assert len(keepers.records()) == 1

    def test_where_the_queue_refuses_the_node_is_deleted(
        self, keepers: Keepers, cloud: Cloud, simulator
    ) -> None:
        options = UpOptions(
            "v3-8", "q1", "ada", framework="jax",
            queued=True, lifetime=Lifetime(ttl=HOUR),
        )  # fmt: skip
        change = creation(
            cloud.provider, options, "europe-west4-a", "tpu-ubuntu2204-base", cloud.ssh.login_key()
        )
        simulator.faults.add("permission", method="DeleteQueuedResource")
        cloud.provider.begin(change).wait("to be created", 60)
        keepers.wait(lambda: keepers.note(node="q1").get("expires"), "the keeper")
        keepers.advance(HOUR)
        keepers.wait_for_end()

    def test_a_bucket_that_does_not_exist_stops_nothing(
        self, keepers: Keepers, tpuctl: Command, cloud: Cloud
    ) -> None:
        up(tpuctl, "--ttl", "1h")
        (node,) = cloud.provider.list_nodes().nodes
        metadata = {**node.metadata, "tpuctl-bucket": "no-such-bucket"}
        cloud.provider.begin(UpdateNode(node, metadata=metadata)).wait("to be updated", 60)
        keepers.wait_for_look()
        keepers.advance(HOUR)
        keepers.wait_for_end()

    @pytest.mark.parametrize(("name", "value"), [("tpuctl-expires", "soon"), ("tpuctl-ttl", "0s")])
    def test_metadata_that_is_no_time_is_named_and_deletes_nothing(
        self, keepers: Keepers, tpuctl: Command, cloud: Cloud, name: str, value: str
    ) -> None:
        up(tpuctl, "--ttl", "1h")
        (node,) = cloud.provider.list_nodes().nodes
        metadata = {**node.metadata, name: value}
        cloud.provider.begin(UpdateNode(node, metadata=metadata)).wait("to be updated", 60)
        keepers.wait_for_look()
        keepers.advance(HOUR)
        keepers.wait(lambda: repr(value) in keepers.note().get("error", ""), "the error")
        assert keepers.names() == ["n1"]


class TestIdle:
    def test_a_host_that_nobody_uses_is_deleted(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--idle", "10m")
        keepers.wait_for_look()
        keepers.advance(500)
        keepers.wait_for_look()
        assert keepers.names() == ["n1"]
        keepers.advance(120)
        keepers.wait_for_end()
        (record,) = keepers.records()
        assert record["reason"] == "idle"
        assert 600 <= moment(record["at"]) - moment(record["active"]) < 700

    def test_a_run_keeps_it(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--idle", "10m")
        Path("job.py").write_text(LOOP)
        assert tpuctl("submit", "job.py", "--name", "r1").code == 0
        keepers.advance(HOUR)
        keepers.wait(  # the login of `submit` may take a moment to end
            lambda: keepers.wait_for_look()["activity"] == "run r1, attempt 1", "the run without a login"
        )
        assert keepers.names() == ["n1"]
        keepers.wait(lambda: keepers.bucket.objects("runs/r1/attempts/1/log/"), "the script's line")
        assert kill(b"worker.zip", keepers.disk().home)  # the supervisor, and what guards its end
        assert keepers.wait_for_look()["activity"] == "run r1, attempt 1", "the script outlives them"
        assert kill(b"job.py", keepers.disk().home)
        keepers.wait(lambda: keepers.note()["activity"] == "", "the end of the run")
        keepers.advance(HOUR)
        keepers.wait_for_end()

    def test_somebody_logged_in_keeps_it(self, keepers: Keepers, tpuctl: Command, cloud: Cloud) -> None:
        up(tpuctl, "--idle", "10m")
        (node,) = cloud.provider.list_nodes().nodes
        with cloud.ssh.connect(node, 0, cloud.provider.host_keys(node.id)[0]):
            keepers.wait(lambda: "is logged in" in keepers.note().get("activity", ""), "the login")
            keepers.advance(HOUR)
            keepers.wait_for_look()
            assert keepers.names() == ["n1"]
        keepers.wait(lambda: keepers.note()["activity"] == "", "the logout")
        keepers.advance(HOUR)
        keepers.wait_for_end()

    def test_a_program_that_holds_chips_keeps_it(self, keepers: Keepers, tpuctl: Command) -> None:
        up(tpuctl, "--idle", "10m")
        with holder(keepers.disk().view) as program:
            held = f"process {program.pid} holds TPU chips"
            keepers.wait(lambda: keepers.note().get("activity") == held, "the chips")
            keepers.advance(HOUR)
            keepers.wait_for_look()
            assert keepers.names() == ["n1"]
        keepers.wait(lambda: keepers.note()["activity"] == "", "free chips")
        keepers.advance(HOUR)
        keepers.wait_for_end()

    def test_a_login_on_another_worker_keeps_the_slice(
        self, keepers: Keepers, tpuctl: Command, cloud: Cloud, simulator
    ) -> None:
        created = tpuctl("up", "v3-32", "--framework", "jax", "--name", "n1", "--idle", "10m", "--yes")
        assert created.code == 0, created.err
        (node,) = cloud.provider.list_nodes().nodes
        with cloud.ssh.connect(node, 3, cloud.provider.host_keys(node.id)[3]):
            keepers.wait(lambda: "is logged in" in keepers.note(3).get("activity", ""), "the login")
            for worker in range(4):
                keepers.wait_for_look(worker)
            for _ in range(4):  # half of --idle each: worker 3's last report is not older than that
                keepers.advance(300)
                keepers.wait_for_look(3)
                keepers.wait_for_look()
            assert keepers.names() == ["n1"]
        keepers.wait(lambda: keepers.note(3)["activity"] == "", "the logout")
        simulator.faults.add("error", method="GetGuestAttributes", code="NOT_FOUND")
        keepers.advance(HOUR)
        keepers.wait_for_end()
