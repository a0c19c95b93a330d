"""The Compute Engine API of a project's metadata, and its effects on the hosts of the project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.compute.site import Site

METADATA = "curl -s -H 'Metadata-Flavor: Google' http://$GCE_METADATA_HOST/computeMetadata/v1"


def test_a_project_begins_without_metadata(site: Site) -> None:
    project = site.compute("acme")
    assert project["kind"] == "compute#project"
    assert project["name"] == "acme"
    assert "items" not in project["commonInstanceMetadata"]
    assert project["defaultServiceAccount"].endswith("-compute@developer.gserviceaccount.com")


def test_setting_metadata_is_an_operation_that_is_done(site: Site) -> None:
    operation = site.set_metadata("acme", colour="blue")
    assert (operation["status"], operation["progress"]) == ("DONE", 100)
    read = site.compute(f"acme/global/operations/{operation['name']}")
    assert read == operation
    assert site.compute(f"acme/global/operations/{operation['name']}/wait", b"") == operation
    assert operation["targetLink"] == f"{site.endpoints['compute_rest']}/compute/v1/projects/acme"
    (item,) = site.compute("acme")["commonInstanceMetadata"]["items"]
    assert item == {"key": "colour", "value": "blue"}
    assert "items" not in site.compute("other")["commonInstanceMetadata"]


@pytest.mark.parametrize("fingerprint", [None, "", "c3RhbGU="])
def test_metadata_that_changed_meanwhile_is_not_overwritten(site: Site, fingerprint: str | None) -> None:
    body = {"items": [], **({} if fingerprint is None else {"fingerprint": fingerprint})}
    error = site.compute("acme/setCommonInstanceMetadata", body, status=412)
    assert error["errors"][0]["reason"] == "conditionNotMet"


@pytest.mark.parametrize(
    "items",
    [
        [{"key": "a b", "value": "x"}],
        [{"key": "a" * 129, "value": "x"}],
        [{"key": "a", "value": "x" * ((256 << 10) + 1)}],
        [{"key": "a", "value": "x"}, {"key": "a", "value": "y"}],
        [{"key": "a", "value": 1}],
        [{"value": "x"}],
        "garbage",
        7,
    ],
)
def test_metadata_that_makes_no_sense_is_refused(site: Site, items: Any) -> None:
    fingerprint = site.compute("acme")["commonInstanceMetadata"]["fingerprint"]
    body = {"fingerprint": fingerprint, "items": items}
    site.compute("acme/setCommonInstanceMetadata", body, status=400)
    assert site.compute("acme")["commonInstanceMetadata"]["fingerprint"] == fingerprint


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_message_is_refused(site: Site, body: bytes) -> None:
    site.compute("acme/setCommonInstanceMetadata", body, status=400)


def test_what_is_not_simulated_is_not_found(site: Site) -> None:
    assert site.compute("acme/global/snapshots", status=404)["code"] == 404
    site.compute("acme/global/operations/operation-1", status=404)


def test_a_projects_metadata_shows_on_its_hosts_at_once(site: Site) -> None:
    site.set_metadata(colour="blue")
    address = site.create("one").network_endpoints[0].ip_address
    assert site.run(address, f"{METADATA}/project/attributes/colour") == "blue"
    site.set_metadata(colour="red")
    assert site.run(address, f"{METADATA}/project/attributes/?recursive=true") == '{"colour": "red"}'
    site.set_metadata("other", colour="green")
    assert site.run(address, f"{METADATA}/project/attributes/colour") == "red"


def test_a_projects_keys_open_all_its_hosts_that_do_not_shut_them_out(site: Site) -> None:
    nodes: dict[str, Callable[[], Any]] = {
        "open": lambda: site.create("open", metadata={}),
        "blocked": lambda: site.create("blocked", metadata={"block-project-ssh-keys": "TRUE"}),
        "old": lambda: site.create("old", metadata={"sshKeys": "eve:ssh-ed25519 AAAA eve"}),
    }
    created = {name: create() for name, create in nodes.items()}
    site.set_metadata(ssh_keys=site.user.key_line)
    assert site.run(created["open"].network_endpoints[0].ip_address, "echo in") == "in\n"
    site.refused(created["blocked"])
    site.refused(created["old"])
    later = site.create("later", metadata={})
    assert site.run(later.network_endpoints[0].ip_address, "echo in") == "in\n"


def test_a_projects_metadata_outlives_a_restart(site: Site) -> None:
    operation = site.set_metadata(ssh_keys=site.user.key_line)
    node = site.create("one", metadata={})
    site.restart()
    assert site.compute(f"sim-project/global/operations/{operation['name']}") == operation
    assert site.run(node.network_endpoints[0].ip_address, "echo in") == "in\n"


@pytest.mark.parametrize("site_options", [{"key_delay": 3600.0}])
def test_a_projects_key_does_not_count_before_the_delay(site: Site) -> None:
    node = site.create("one", metadata={})
    site.set_metadata(ssh_keys=site.user.key_line)
    site.refused(node)
