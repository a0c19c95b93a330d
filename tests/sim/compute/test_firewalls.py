"""Which rules of a firewall let machines outside of the network reach SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tpuctl.sim.compute.holdings import Firewalls
from tpuctl.sim.state import Database

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
