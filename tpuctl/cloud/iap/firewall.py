"""Looks for the firewall rule that lets IAP's relay reach port 22, through the Compute Engine API."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_network

import msgspec

from tpuctl.cloud.iap.endings import RANGE
from tpuctl.cloud.rest import RestApi
from tpuctl.errors import ConfigError

SSH_PORT = 22
PROTOCOLS = ("tcp", "6", "all")


class _Allowed(msgspec.Struct, frozen=True):
    protocol: str = msgspec.field(name="IPProtocol", default="")
    ports: tuple[str, ...] = ()


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    """https://cloud.google.com/compute/docs/reference/rest/v1/firewalls: other fields are skipped."""

    name: str = ""
    network: str = ""
    direction: str = "INGRESS"
    disabled: bool = False
    source_ranges: tuple[str, ...] = ()
    target_tags: tuple[str, ...] = ()
    target_service_accounts: tuple[str, ...] = ()
    allowed: tuple[_Allowed, ...] = ()


class _Network(msgspec.Struct, frozen=True, rename="camel"):
    next_page_token: str = ""
    """Not of this resource: a page that is the last."""


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    items: tuple[_Rule, ...] = ()
    next_page_token: str = ""


def ssh_rule(api: RestApi, project: str, network: str) -> str | None:
    """Return the name of a rule that admits the relay to port 22 of all hosts of a network, None without one.

    Rules for some hosts (tags, accounts) and policies of folders are not looked at. Raises tpuctl's errors.
    """
    *_, owner, _, _, name = ("projects", project, "global", "networks", *network.split("/"))[-5:]
    path, subject = f"/compute/v1/projects/{owner}/global/firewalls", f"The firewall rules of project {owner}"
    rules = [rule for page in api.pages(path, _Page, subject) for rule in page.items]
    try:
        admitting = next((rule.name for rule in rules if _admits(rule, name)), None)
    except ValueError as error:
        raise ConfigError(f"{subject} cannot be read: {error}.") from error
    if not any(rule.network.rpartition("/")[2] == name for rule in rules):
        _require_network(api, owner, name)
    return admitting


def _require_network(api: RestApi, project: str, name: str) -> None:
    """Raise NotFoundError for a network that does not exist: it has no rules, and lacks none either."""
    path, subject = f"/compute/v1/projects/{project}/global/networks/{name}", f"Network '{name}' of {project}"
    for _ in api.pages(path, _Network, subject):
        return


def _admits(rule: _Rule, network: str) -> bool:
    is_for_all = not (rule.disabled or rule.target_tags or rule.target_service_accounts)
    is_in = rule.direction == "INGRESS" and rule.network.rpartition("/")[2] == network
    return is_for_all and is_in and _covers(rule.source_ranges) and any(map(_allows_ssh, rule.allowed))


def _covers(ranges: tuple[str, ...]) -> bool:
    relay = IPv4Network(RANGE)
    networks = [ip_network(text, strict=False) for text in ranges if ":" not in text]
    return any(isinstance(network, IPv4Network) and relay.subnet_of(network) for network in networks)


def _allows_ssh(allowed: _Allowed) -> bool:
    if allowed.protocol.lower() not in PROTOCOLS:
        return False
    bounds = [ports.partition("-") for ports in allowed.ports]
    return not bounds or any(int(low) <= SSH_PORT <= int(high or low) for low, _, high in bounds)
