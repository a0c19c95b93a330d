"""Tests the labels by which a person's nodes are found again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tpuctl.nodes.owner import Owned, owner_label

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
