"""Where a policy forbids guest attributes, who says so trusts the key that answers first, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
REFUSAL = "Constraint constraints/compute.disableGuestAttributesAccess violated for project sim-project."
UP = ("up", "v3-8", "--name", "n1", "--yes")


@pytest.fixture
def _forbidden(simulator: RunningSimulator) -> None:
    simulator.faults.add("guest-attributes-off")


@pytest.mark.usefixtures("_forbidden")
def test_a_policy_that_forbids_guest_attributes_is_said_with_what_bills_and_the_way_around(
    tpuctl: Tpuctl,
) -> None:
    refused = tpuctl(*UP)
    assert refused.code == 3
    assert REFUSAL in refused.err
    assert "Node 'n1' in europe-west4-a bills." in refused.err
    assert "--host-keys first-contact" in refused.err
    assert tpuctl("exec", "n1", "--", "true").code == 3
    assert tpuctl(*UP, "--host-keys", "first-contact").code == 0
    assert tpuctl("exec", "n1", "--host-keys", "first-contact", "--", "echo", "here").out.endswith("here\n")


@pytest.mark.usefixtures("_forbidden")
def test_another_key_than_that_of_the_first_contact_is_refused(
    tpuctl: Tpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_HOST_KEYS", "first-contact")
    assert tpuctl(*UP).code == 0
    (kept,) = (tmp_path / "state" / "host-keys").iterdir()
    own = kept.read_text()
    kept.write_text("AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43)
    impostor = tpuctl("exec", "n1", "--", "true")
    assert impostor.code == 8
    assert "its host key is not the one" in impostor.err
    assert "host-keys" in impostor.err
    kept.write_text(own)
    assert tpuctl("exec", "n1", "--", "true").code == 0


def test_a_published_key_comes_before_that_of_the_first_contact(
    simulator: RunningSimulator, tpuctl: Tpuctl, tmp_path: Path
) -> None:
    assert tpuctl(*UP).code == 0
    fault = simulator.faults.add("error", method="GetGuestAttributes", code="PERMISSION_DENIED", message="No")
    assert tpuctl("exec", "n1", "--host-keys", "first-contact", "--", "true").code == 0
    (kept,) = (tmp_path / "state" / "host-keys").iterdir()
    kept.write_text("AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43)
    simulator.faults.remove(fault.id)
    assert tpuctl("exec", "n1", "--host-keys", "first-contact", "--", "true").code == 0
