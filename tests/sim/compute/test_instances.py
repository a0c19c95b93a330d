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
    for rule in listed:
        assert rules.get(project="acme", firewall=rule["name"]).execute() == rule
    with pytest.raises(HttpError) as raised:
        rules.get(project="acme", firewall="own").execute()
    assert raised.value.reason == "The resource 'projects/acme/global/firewalls/own' was not found"
