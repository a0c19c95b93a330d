"""Tests which firewall rules let IAP's relay, or anybody, reach port 22."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.cloud.web_server import serving
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.iap.firewall import is_ssh_open, ssh_rule
from tpuctl.cloud.rest import RestApi
from tpuctl.errors import TpuctlError

RULE = {
    "name": "ssh-through-iap",
    "network": "https://www.googleapis.com/compute/v1/projects/p/global/networks/lab",
    "direction": "INGRESS",
    "sourceRanges": ["35.235.240.0/20"],
    "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
}


def found(
    rules: list[dict[str, Any]],
    network: str = "lab",
    look: Callable[..., Any] = ssh_rule,
    *host: object,
) -> Any:
    body = json.dumps({"items": rules}).encode()
    files = {f"/compute/v1/projects/{project}/global/firewalls": body for project in ("a-project", "shared")}
    lab = "/compute/v1/projects/a-project/global/networks/lab"
    files[lab] = b"{}"
    with serving(files) as web, requests.Session() as session:
        session.trust_env = False
        api = RestApi(session, web.url, Service("compute.googleapis.com", "roles/compute.viewer"))
        rule = look(api, "a-project", network, *host)
    owner = "shared" if "/" in network else "a-project"
    asked = [f"/compute/v1/projects/{owner}/global/firewalls"]
    if not any(each["network"].endswith("/lab") for each in rules):
        asked.append(lab)  # that the network is there at all
    assert web.requests == asked
    return rule


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"sourceRanges": ["10.0.0.0/8", "::/0", "0.0.0.0/0"]},
        {"sourceRanges": ["35.235.240.1/20"]},
        {"allowed": [{"IPProtocol": "icmp"}, {"IPProtocol": "tcp", "ports": ["80", "20-30"]}]},
        {"allowed": [{"IPProtocol": "all"}]},
        {"allowed": [{"IPProtocol": "6", "ports": ["22-23"]}]},
        {"allowed": [{"IPProtocol": "TCP", "ports": ["21-22"]}]},
        {"direction": None},
    ],
)
def test_a_rule_that_admits_the_relay(change: dict[str, Any]) -> None:
    rule = {name: value for name, value in {**RULE, **change}.items() if value is not None}
    assert found([{**RULE, "name": "other", "disabled": True}, rule]) == "ssh-through-iap"


def test_a_shared_network_has_the_rules_of_its_own_project() -> None:
    assert found([RULE], "projects/shared/global/networks/lab") == "ssh-through-iap"


@pytest.mark.parametrize(
    "change",
    [
        {"disabled": True},
        {"direction": "EGRESS"},
        {"network": ".../networks/another-lab"},
        {"sourceRanges": ["35.235.240.0/24"]},
        {"sourceRanges": ["::/0"]},
        {"sourceRanges": []},
        {"targetTags": ["web"]},
        {"targetServiceAccounts": ["a@b.c"]},
        {"allowed": [{"IPProtocol": "udp"}]},
        {"allowed": [{"ports": ["22"]}]},
        {"allowed": [{"IPProtocol": "tcp", "ports": ["23-90", "2"]}]},
        {"allowed": []},
    ],
)
def test_a_rule_that_does_not(change: dict[str, Any]) -> None:
    assert found([{**RULE, **change}]) is None


def test_an_answer_that_cannot_be_read_is_no_verdict() -> None:
    with pytest.raises(TpuctlError):
        found([{**RULE, "sourceRanges": ["everywhere"]}])


OUTSIDE = {**RULE, "sourceRanges": ["0.0.0.0/0"]}
"""A rule of the default network: everybody may knock."""


@pytest.mark.parametrize(
    ("change", "is_open"),
    [
        ({}, True),
        ({"sourceRanges": ["10.128.0.0/9", "203.0.113.7/32", "198.51.0.0/16"]}, True),
        ({"targetTags": ["web", "tpu"]}, True),
        ({"targetServiceAccounts": ["tpu@p.iam.gserviceaccount.com"]}, True),
        ({"sourceRanges": ["10.128.0.0/9", "192.168.0.0/16", "::/0"]}, False),
        ({"sourceRanges": ["35.235.240.0/20"]}, False),
        ({"targetTags": ["web"]}, False),
        ({"targetServiceAccounts": ["a@b.c"]}, False),
        ({"disabled": True}, False),
        ({"direction": "EGRESS"}, False),
        ({"network": ".../networks/another-lab"}, False),
        ({"allowed": [{"IPProtocol": "tcp", "ports": ["80"]}]}, False),
    ],
)
def test_who_is_outside_is_let_in_by_a_rule_for_such_hosts(change: dict[str, Any], is_open: bool) -> None:
    host = (["tpu"], "tpu@p.iam.gserviceaccount.com")
    assert found([{**OUTSIDE, **change}], "lab", is_ssh_open, *host) is is_open
