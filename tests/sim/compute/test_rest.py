"""The Compute Engine API: metadata, firewall rules, operations, and what SkyPilot asks of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from googleapiclient import discovery
from googleapiclient.errors import HttpError
from httplib2 import Http

from tests.sim.compute.site import Site
from tpuctl.sim.compute import operations
from tpuctl.sim.compute.holdings import Firewalls
from tpuctl.sim.compute.operations import Operation, Operations
from tpuctl.sim.state import Database, RecordTable

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


NOW = 1_700_000_000.25


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still."""
    monkeypatch.setattr(operations, "time", SimpleNamespace(time=lambda: NOW))


def test_an_operation_is_named_as_googles_and_can_be_read(tmp_path: Path, at_once: None) -> None:
    with closing(Database(tmp_path / "world.sqlite")) as database:
        made = Operations(database).record("p", "insert", "/global/firewalls/a")
        assert (made.project, made.kind, made.time, made.target) == (
            "p",
            "insert",
            NOW,
            "/global/firewalls/a",
        )
        assert re.fullmatch(r"operation-1700000000250-[0-9a-f]{13}-[0-9a-f]{8}-[0-9a-f]{8}", made.id)
        again = Operations(database)
        assert again.get("p", made.id) == made
        assert again.get("q", made.id) is None


def test_the_latest_thousand_can_be_read(tmp_path: Path, at_once: None) -> None:
    with closing(Database(tmp_path / "world.sqlite")) as database:
        table = RecordTable(database, "compute operation", Operation)
        for number in range(999):
            table.put(Operation(f"p/operation-{number}", "insert", NOW - number - 1))
        kept = Operations(database)
        kept.record("p", "insert")
        assert kept.get("p", "operation-998") is not None
        kept.record("p", "insert")
        assert (kept.get("p", "operation-998"), kept.get("p", "operation-997") is None) == (None, False)


SSH: dict[str, Any] = {
    "name": "mine",
    "sourceRanges": ["127.0.0.1/32"],
    "allowed": [{"IPProtocol": "tcp", "ports": ["20-30"]}],
}


@pytest.fixture
def closed(tmp_path: Path) -> Firewalls:
    return Firewalls(Database(tmp_path / "world.db"), closed=True)


def test_a_new_network_lets_them_in_until_its_rule_is_deleted(tmp_path: Path) -> None:
    firewalls = Firewalls(Database(tmp_path / "world.db"))
    rule = firewalls.get("p", "default-allow-ssh")
    assert rule is not None
    assert firewalls.admits_ssh("p")
    firewalls.delete(rule)
    assert not firewalls.admits_ssh("p")


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"sourceRanges": ["0.0.0.0/0"]},
        {"allowed": [{"IPProtocol": "all"}]},
        {"sourceRanges": ["::/0", "8.8.8.0/24"]},
    ],
)
def test_a_rule_opens_one_that_is_closed(closed: Firewalls, rule: dict[str, Any]) -> None:
    assert not closed.admits_ssh("p")
    closed.insert("p", SSH | rule)
    assert (closed.admits_ssh("p"), closed.admits_ssh("q")) == (True, False)


@pytest.mark.parametrize(
    "rule",
    [
        {"disabled": True},
        {"direction": "EGRESS"},
        {"sourceRanges": ["10.0.0.0/8", "35.235.240.0/20"]},
        {"allowed": [{"IPProtocol": "udp"}, {"IPProtocol": "tcp", "ports": ["80", "443"]}]},
    ],
)
def test_other_rules_do_not(closed: Firewalls, rule: dict[str, Any]) -> None:
    closed.insert("p", SSH | rule)
    assert not closed.admits_ssh("p")


ZONE = "europe-west4-a"


@pytest.fixture
def compute(site: Site) -> Iterator[Any]:
    """The methods of Compute Engine, of the document that the client ships."""
    options = {"api_endpoint": f"{site.endpoints['compute_rest']}/compute/v1/"}
    with closing(Http()) as http:
        yield discovery.build("compute", "v1", http=http, client_options=options, cache_discovery=False)


@pytest.mark.daily
def test_a_project_has_no_instances(site: Site, compute: Any) -> None:
    site.create("one")
    instances = compute.instances()
    labelled = "((labels.ray-cluster-name = a)) AND ((status = RUNNING) OR (status = STAGING))"
    listing = instances.list(project="acme", zone=ZONE, filter=labelled)
    answer = listing.execute()
    assert (answer["kind"], answer.get("items", [])) == ("compute#instanceList", [])
    assert instances.list_next(listing, answer) is None
    everywhere = instances.aggregatedList(project="acme").execute()
    assert (everywhere["kind"], everywhere["items"]) == ("compute#instanceAggregatedList", {})
    with pytest.raises(
        HttpError, match=f"The resource 'projects/acme/zones/{ZONE}/instances/i' was not found"
    ):
        instances.get(project="acme", zone=ZONE, instance="i").execute()


def test_a_rule_of_the_firewall_is_read_or_is_missing(compute: Any) -> None:
    rules = compute.firewalls()
    listed = rules.list(project="acme").execute()["items"]
    assert [rule["name"] for rule in listed] == ["default-allow-internal", "default-allow-ssh"]
    for rule in listed:
        assert rules.get(project="acme", firewall=rule["name"]).execute() == rule
    with pytest.raises(HttpError) as raised:
        rules.get(project="acme", firewall="own").execute()
    assert raised.value.reason == "The resource 'projects/acme/global/firewalls/own' was not found"


def test_a_rule_of_the_firewall_is_made_changed_and_deleted_as_skypilot_does(
    site: Site, compute: Any
) -> None:
    rules = compute.firewalls()
    body = {
        "name": "own",
        "network": "projects/acme/global/networks/default",
        "selfLink": "projects/acme/global/firewalls/own",
        "direction": "INGRESS",
        "priority": 65534,
        "allowed": [{"IPProtocol": "tcp", "ports": ["8080"]}],
        "sourceRanges": ["0.0.0.0/0"],
        "targetTags": ["c"],
    }
    operation = rules.insert(project="acme", body=body).execute()
    assert operation["targetLink"].endswith("/projects/acme/global/firewalls/own")
    waited = compute.globalOperations().wait(project="acme", operation=operation["name"]).execute()
    assert waited["status"] == "DONE"
    own = rules.get(project="acme", firewall="own").execute()
    assert {**body, "network": own["network"], "selfLink": own["selfLink"]}.items() <= own.items()
    with pytest.raises(HttpError, match="'projects/acme/global/firewalls/own' already exists"):
        rules.insert(project="acme", body=body).execute()
    own["allowed"][0]["ports"] = ["9090"]
    rules.update(project="acme", firewall="own", body=own).execute()
    rules.patch(project="acme", firewall="own", body={"disabled": True}).execute()
    changed = rules.list(project="acme", filter="name=own").execute()["items"]
    assert [(rule["allowed"][0]["ports"], rule["disabled"]) for rule in changed] == [(["9090"], True)]
    rules.delete(project="acme", firewall="own").execute()
    assert "items" not in rules.list(project="acme", filter="name=own").execute()


def test_rules_outlive_a_restart_and_are_deleted(site: Site) -> None:
    rule = {"name": "own", "denied": [{"IPProtocol": "all"}]}
    site.compute("acme/global/firewalls", rule)
    site.restart()
    (own,) = site.compute("acme/global/firewalls?filter=name%3Down")["items"]
    assert (own["denied"], own["priority"], own["direction"]) == (rule["denied"], 1000, "INGRESS")
    assert "own" not in str(site.compute("other/global/firewalls"))
    for name in ("own", "default-allow-ssh"):
        site.compute(f"acme/global/firewalls/{name}", method="DELETE")
        site.compute(f"acme/global/firewalls/{name}", method="DELETE", status=404)
    assert [listed["name"] for listed in site.compute("acme/global/firewalls")["items"]] == [
        "default-allow-internal"
    ]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", {"name": "BAD", "allowed": [{"IPProtocol": "tcp"}]}, {"name": "own"}, {"allowed": [1]}],
)
def test_a_rule_that_makes_no_sense_is_refused(site: Site, body: object) -> None:
    site.compute("acme/global/firewalls", body, status=400)
    assert len(site.compute("acme/global/firewalls")["items"]) == 2
    site.compute("acme/global/firewalls?filter=priority%3E3", status=400)
