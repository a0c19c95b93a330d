"""The facts that a host publishes, in a file of its own."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tpuctl.sim.hosts.metadata.server import GuestAttributes
from tpuctl.sim.records import GuestAttribute


@pytest.fixture
def guest(tmp_path: Path) -> GuestAttributes:
    return GuestAttributes(tmp_path / "guest.json")


def test_attributes_are_kept_in_a_private_file_in_the_order_of_writing(
    guest: GuestAttributes, tmp_path: Path
) -> None:
    assert (guest.tree(), guest.items()) == ({}, [])
    for namespace, key, value in (("b", "2", "x"), ("a", "1", "y"), ("b", "1", "z"), ("b", "2", "w")):
        guest.put(namespace, key, value)
    assert guest.items() == [
        GuestAttribute("b", "2", "w"),
        GuestAttribute("b", "1", "z"),
        GuestAttribute("a", "1", "y"),
    ]
    path = tmp_path / "guest.json"
    assert json.loads(path.read_text()) == {"b": {"2": "w", "1": "z"}, "a": {"1": "y"}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert GuestAttributes(path).tree() == guest.tree()


def test_what_is_published_takes_the_place_of_its_namespaces_alone(guest: GuestAttributes) -> None:
    guest.put("hostkeys", "ssh-rsa", "old")
    guest.put("run", "state", "READY")
    guest.publish({"hostkeys": {"ssh-ed25519": "new"}, "guestInventory": {"Hostname": "h"}})
    assert guest.tree() == {
        "hostkeys": {"ssh-ed25519": "new"},
        "run": {"state": "READY"},
        "guestInventory": {"Hostname": "h"},
    }


def test_a_namespace_goes_with_its_last_attribute(guest: GuestAttributes) -> None:
    for key in ("state", "step"):
        guest.put("run", key, "")
    assert [guest.delete("run", "none"), guest.delete("none", "state")] == [False, False]
    assert guest.delete("run", "state")
    assert guest.tree() == {"run": {"step": ""}}
    assert guest.delete("run", "step")
    assert not guest.delete("run", "step")
    assert guest.tree() == {}
