"""The keeper with terraform's roles enforced: what it may delete, and what it says without a right."""

from __future__ import annotations

import pytest

from tests.host.keeper.site import Keepers
from tests.sim.iam.rehearsal import Start, Tpuctl, grant
from tpuctl.cloud.endpoints import connect
from tpuctl.config import load
from tpuctl.flows.nodes import lifetime


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keepers look at their host each second."""
    monkeypatch.setattr(lifetime, "LOOK_INTERVAL", 1)


def test_the_account_of_tpu_vms_deletes_its_node_and_says_so(rehearse: Start, tpuctl: Tpuctl) -> None:
    keepers = Keepers(rehearse(), connect(load({})).bucket)
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes").code == 0
    keepers.wait_for_look()
    keepers.advance(3600)
    keepers.wait_for_end()
    assert [record["reason"] for record in keepers.records()] == ["expired"]


def test_of_a_queued_resource_what_bills_is_deleted_and_reap_deletes_the_rest(
    rehearse: Start, tpuctl: Tpuctl
) -> None:
    """Google's list of permissions has none for queued resources that a custom role could take."""
    simulator = rehearse()
    keepers = Keepers(simulator, connect(load({})).bucket)
    created = tpuctl("up", "v3-8", "--name", "n1", "--queued", "--ttl", "1h", "--yes")
    assert created.code == 0, created.err
    keepers.wait_for_look()
    keepers.advance(3600)
    keepers.wait_for_end()
    keepers.wait(
        lambda: [item.state for item in simulator.world.queued_resources.all()] == ["SUSPENDED"], "suspension"
    )
    assert tpuctl("reap", "--yes").code == 0
    assert simulator.world.queued_resources.all() == []


def test_without_the_right_to_delete_itself_the_keeper_names_it(rehearse: Start, tpuctl: Tpuctl) -> None:
    keepers = Keepers(
        rehearse(dropped=grant("google_project_iam_member", "/tpuctl_tpu")), connect(load({})).bucket
    )
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes").code == 0
    keepers.wait(lambda: "Permission 'tpu.nodes.get' denied" in keepers.note().get("error", ""), "the error")
    assert keepers.names() == ["n1"]
