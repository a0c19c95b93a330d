"""Stores the rules of the firewall of each project's network; they filter SSH from outside alone."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.state.database import Database, RecordTable

NAME = re.compile(r"(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)")
DEFAULT_RULES: dict[str, JsonObject] = {
    name: {
        "direction": "INGRESS",
        "priority": 65534,
        "disabled": False,
        "sourceRanges": [source],
        "allowed": [{"IPProtocol": "tcp", "ports": [ports]}],
    }
    for name, source, ports in (
        ("default-allow-internal", "10.128.0.0/9", "0-65535"),
        ("default-allow-ssh", "0.0.0.0/0", "22"),
    )
}
"""The rules that a new project's network `default` has for SSH and for its own hosts.

https://cloud.google.com/firewall/docs/firewalls#more_rules_default_vpc
"""
SSH_RULE, SSH_PORT = "default-allow-ssh", 22
RELAY = IPv4Network("35.235.240.0/20")
"""From where Identity-Aware Proxy reaches hosts: https://cloud.google.com/iap/docs/using-tcp-forwarding"""
USER = IPv4Address("127.0.0.1")
"""Where programs of this machine come from."""
IMPLIED: JsonObject = {"direction": "INGRESS", "priority": 1000, "disabled": False}
SIDES = ("allowed", "denied")


class BadRule(ValueError):
    """A rule that Compute Engine refuses."""


class RuleExists(Exception):
    """There is a rule of this name."""


@dataclass(frozen=True)
class Rule:
    """The stored record of a rule; `name` is `PROJECT/RULE`, and a default rule without fields is deleted."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0

    @property
    def id(self) -> str:
        return self.name.partition("/")[2]

    @property
    def time(self) -> str:
        """When it was made, as Google writes it."""
        return datetime.fromtimestamp(self.created, UTC).isoformat(timespec="milliseconds")


class Firewalls:
    """The rules of all projects, over restarts; `closed` leaves out the default one for SSH."""

    def __init__(self, database: Database, *, closed: bool = False) -> None:
        self._records = RecordTable(database, "firewall rule", Rule)
        self._defaults = {
            name: fields for name, fields in DEFAULT_RULES.items() if not (closed and name == SSH_RULE)
        }

    def rules(self, project: str) -> list[Rule]:
        """Return the rules of a project by their names."""
        stored = [rule for rule in self._records.all() if rule.name.startswith(f"{project}/")]
        defaults = [Rule(f"{project}/{name}", dict(fields)) for name, fields in self._defaults.items()]
        by_name = {rule.id: rule for rule in [*defaults, *stored]}
        return [rule for _, rule in sorted(by_name.items()) if rule.fields]

    def apply(self, project: str, fields: JsonObject) -> None:
        """Store a rule as Terraform has made it, unless there is one of its name."""
        if self.get(project, str(fields["name"])) is None:
            self._put(Rule(f"{project}/{fields['name']}", IMPLIED | fields, time.time()))

    def has_network(self, project: str, name: str) -> bool:
        """Whether a project has a network: `default`, or one that a rule is of."""
        networks = {str(rule.fields.get("network", "")).rpartition("/")[2] for rule in self.rules(project)}
        return name in {"default", *networks}

    def get(self, project: str, name: str) -> Rule | None:
        """Return a rule, or None."""
        return next((rule for rule in self.rules(project) if rule.id == name), None)

    def admits_ssh(self, project: str) -> bool:
        """Whether a rule, of any network and for any hosts, admits machines outside to port 22."""
        rules = (rule.fields for rule in self.rules(project))
        return any(
            not fields.get("disabled")
            and fields.get("direction") == "INGRESS"
            and any(map(_is_for_ssh, fields.get("allowed", ())))
            and any(map(_is_outside, fields.get("sourceRanges", ())))
            for fields in rules
        )

    def insert(self, project: str, sent: JsonObject) -> Rule:
        """Store a new rule; raises BadRule, RuleExists."""
        name = str(sent.get("name", ""))
        if not NAME.fullmatch(name):
            place = f"Invalid value for field 'resource.name': '{name}'."
            raise BadRule(f"{place} Must be a match of regex '{NAME.pattern}'")
        if self.get(project, name):
            raise RuleExists
        return self._put(Rule(f"{project}/{name}", IMPLIED | sent, time.time()))

    def change(self, rule: Rule, sent: JsonObject, *, whole: bool) -> Rule:
        """Store a rule with the fields that were sent, `whole` without its others; raises BadRule."""
        return self._put(Rule(rule.name, (IMPLIED if whole else rule.fields) | sent, rule.created))

    def delete(self, rule: Rule) -> None:
        """Delete a rule."""
        if rule.id in DEFAULT_RULES:
            self._records.put(Rule(rule.name))
        else:
            self._records.remove(rule.name)

    def _put(self, rule: Rule) -> Rule:
        if sum(bool(rule.fields.get(side)) for side in SIDES) != 1:
            raise BadRule("Exactly one of 'allowed' and 'denied' must be specified for a firewall rule.")
        self._records.put(rule)
        return rule


def _is_for_ssh(allowed: JsonObject) -> bool:
    ports = allowed.get("ports")
    bounds = [str(port).partition("-") for port in ports] if isinstance(ports, list) else []
    is_tcp = str(allowed.get("IPProtocol")).lower() in ("tcp", "6", "all")
    return is_tcp and (not bounds or any(int(low) <= SSH_PORT <= int(high or low) for low, _, high in bounds))


def _is_outside(text: str) -> bool:
    """Whether a range has addresses of machines outside: public ones but the relay's, or this machine's."""
    try:
        network = IPv4Network(text, strict=False)
    except ValueError:  # IPv6
        return False
    return USER in network or not (network.is_private or network.subnet_of(RELAY))
