"""Tests the labels by which a person's nodes are found again."""

from __future__ import annotations

import re

import pytest

from tpuctl.nodes.owner import is_owned_by, owner_label, owner_of

IDENTITIES = ("ada@example.com", "Ada@example.com", "ada.example@com", "ada", "é", "_", "a" * 200, "a" * 201)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_label_is_one_that_google_cloud_accepts(identity: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", owner_label(identity))


def test_every_identity_has_another_label() -> None:
    assert len({owner_label(identity) for identity in IDENTITIES}) == len(IDENTITIES)


def test_a_label_can_be_read() -> None:
    assert owner_label("ada@example.com").startswith("ada-example-com-")


def test_only_what_tpuctl_made_for_an_identity_is_its_own() -> None:
    labels = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada@example.com")}
    assert is_owned_by(labels, "ada@example.com")
    assert not is_owned_by(labels, "bob@example.com")
    assert not is_owned_by({**labels, "managed-by": "terraform"}, "ada@example.com")
    assert not is_owned_by({"managed-by": "tpuctl", "tpuctl-user": "ada"}, "ada"), "many are called so"


def test_the_owner_is_shown_as_well_as_it_is_known() -> None:
    labels = {"tpuctl-owner": "ada-example-com-0"}
    assert owner_of(labels, {"tpuctl-owner": "ada@example.com"}) == "ada@example.com"
    assert owner_of(labels, {}) == "ada-example-com-0"
    assert owner_of({"tpuctl-user": "ada"}, {}) == "ada"
    assert owner_of({}, {}) == ""
