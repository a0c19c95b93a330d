"""Whether a node can be used, whose it is by its labels, and why a key in its metadata is one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.flows.nodes.memory_provider import node
from tpuctl.errors import StateError
from tpuctl.nodes import SshKey
from tpuctl.nodes.owner import Owned, owner_label
from tpuctl.nodes.queued_resources import require_ready, require_running

MISSING = (
    ("v3-8", (), "no address of its host", "it"),
    ("v3-8", ("",), "no address of its host", "it"),
    ("v3-32", (), "none of its 4 hosts", "them"),
    ("v3-32", ("10.0.0.1", "10.0.0.2", "10.0.0.3"), "3 of its 4 hosts", "them"),
    ("v3-32", ("10.0.0.1", "", "10.0.0.3", "10.0.0.4"), "3 of its 4 hosts", "them"),
    ("v99-16", (), "no address of its host", "it"),
    ("v99-16", ("10.0.0.1", ""), "1 of its 2 hosts", "them"),
)
COMPLETE = (("v3-8", 1), ("v3-32", 4), ("v99-16", 1), ("v99-16", 2), ("v3-8", 2))


def test_a_node_whose_hosts_are_not_all_listed_is_not_ready() -> None:
    """The API may list endpoints late; of a type that nobody knows it alone says how many there are."""
    for accelerator, addresses, missing, pronoun in MISSING:
        partial = node(accelerator=accelerator, addresses=addresses)
        with pytest.raises(StateError) as refused:
            require_ready(partial)
        assert refused.value.message == f"Node 'n1' is its READY, but the provider lists {missing}."
        assert refused.value.hint == f"Wait for {pronoun}: tpuctl wait n1"
        assert require_running(partial) is partial, "it bills, and can be stopped"


def test_a_node_with_an_address_of_every_host_is_ready() -> None:
    for accelerator, hosts in COMPLETE:
        complete = node(accelerator=accelerator, addresses=("10.0.0.1",) * hosts)
        assert require_ready(complete) is complete
        assert (complete.hosts, complete.missing_hosts) == (hosts, "")


@pytest.mark.parametrize("user", ["ada\nroot", "ada\r", "ada:x", "ada root", "", "ada\x00", "ada\u2028root"])
def test_a_user_that_would_be_more_than_one_is_refused(user: str) -> None:
    with pytest.raises(ValueError, match="cannot be the user of a key"):
        SshKey(user, "ssh-ed25519 AAAA")


@pytest.mark.parametrize("public_key", ["ssh-ed25519 AAAA\nroot:ssh-ed25519 BBBB", "ssh-ed25519 AAAA\r"])
def test_a_key_of_two_lines_is_refused(public_key: str) -> None:
    with pytest.raises(ValueError, match="is not one line"):
        SshKey("ada", public_key)


IDENTITIES = ("ada@example.com", "Ada@example.com", "ada.example@com", "ada", "é", "_", "a" * 200, "a" * 201)


@dataclass(frozen=True)
class Thing(Owned):
    labels: Mapping[str, str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    name: str = "n1"


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_label_is_one_that_google_cloud_accepts(identity: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", owner_label(identity))


def test_every_identity_has_another_label() -> None:
    assert len({owner_label(identity) for identity in IDENTITIES}) == len(IDENTITIES)


def test_a_label_can_be_read() -> None:
    assert owner_label("ada@example.com").startswith("ada-example-com-")


def test_only_what_tpuctl_made_for_an_identity_is_its_own() -> None:
    labels = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada@example.com")}
    assert Thing(labels).is_owned_by("ada@example.com")
    assert not Thing(labels).is_owned_by("bob@example.com")
    assert not Thing({**labels, "managed-by": "terraform"}).is_owned_by("ada@example.com")
    assert not Thing({"managed-by": "tpuctl", "tpuctl-user": "ada"}).is_owned_by("ada"), "many are called so"


def test_the_owner_is_shown_as_well_as_it_is_known() -> None:
    labels = {"tpuctl-owner": "ada-example-com-0"}
    assert Thing(labels, {"tpuctl-owner": "ada@example.com"}).owner == "ada@example.com"
    assert Thing(labels, {}).owner == "ada-example-com-0"
    assert Thing({"tpuctl-user": "ada"}, {}).owner == "ada"
    assert Thing({}, {}).owner == ""
