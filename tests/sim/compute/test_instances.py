"""What SkyPilot asks of Compute Engine beside its TPUs, with Google's own client for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from googleapiclient import discovery
from googleapiclient.errors import HttpError
from httplib2 import Http

from tests.sim.compute.site import Site

ZONE = "europe-west4-a"


@pytest.fixture
def compute(site: Site) -> Iterator[Any]:
    """The methods of Compute Engine, of the document that the client ships."""
    options = {"api_endpoint": f"{site.endpoints['compute_rest']}/compute/v1/"}
    with closing(Http()) as http:
        yield discovery.build("compute", "v1", http=http, client_options=options, cache_discovery=False)


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
