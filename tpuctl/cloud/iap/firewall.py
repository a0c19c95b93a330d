"""Looks for the firewall rules that let IAP's relay, or anybody, reach port 22: the Compute Engine API."""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import IPv4Network

import msgspec

from tpuctl.cloud.iap.frames import RANGE
from tpuctl.cloud.rest import RestApi
from tpuctl.errors import ConfigError

SSH_PORT = 22
PROTOCOLS = ("tcp", "6", "all")
RELAY = IPv4Network(RANGE)


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

    def admits(rule: _Rule) -> bool:
        return not (rule.target_tags or rule.target_service_accounts) and _covers(rule.source_ranges)

    return _first(api, project, network, admits)


def is_ssh_open(api: RestApi, project: str, network: str, tags: Collection[str], account: str) -> bool:
    """Whether a rule admits machines outside of a network to port 22 of hosts with these tags and account.

    Which machines is not looked at, nor are policies of folders. Raises tpuctl's errors.
    """

    def admits(rule: _Rule) -> bool:
        targets = {*rule.target_tags, *rule.target_service_accounts}
        return (not targets or bool(targets & {*tags, account})) and _admits_outside(rule.source_ranges)

    return _first(api, project, network, admits) is not None


def _first(api: RestApi, project: str, network: str, admits: Callable[[_Rule], bool]) -> str | None:
    """Return the name of the first rule for port 22 of a network that `admits` takes, None without one."""
    *_, owner, _, _, name = ("projects", project, "global", "networks", *network.split("/"))[-5:]
    path, subject = f"/compute/v1/projects/{owner}/global/firewalls", f"The firewall rules of project {owner}"
    rules = [rule for page in api.pages(path, _Page, subject) for rule in page.items]
    own = [rule for rule in rules if rule.network.rpartition("/")[2] == name]
    try:
        admitting = next((rule.name for rule in own if _is_for_ssh(rule) and admits(rule)), None)
    except ValueError as error:
        raise ConfigError(f"{subject} cannot be read: {error}.") from error
    if not own:
        _require_network(api, owner, name)
    return admitting


def _require_network(api: RestApi, project: str, name: str) -> None:
    """Raise NotFoundError for a network that does not exist: it has no rules, and lacks none either."""
    path, subject = f"/compute/v1/projects/{project}/global/networks/{name}", f"Network '{name}' of {project}"
    for _ in api.pages(path, _Network, subject):
        return


def _is_for_ssh(rule: _Rule) -> bool:
    return not rule.disabled and rule.direction == "INGRESS" and any(map(_allows_ssh, rule.allowed))


def _covers(ranges: tuple[str, ...]) -> bool:
    return any(RELAY.subnet_of(network) for network in _networks(ranges))


def _admits_outside(ranges: tuple[str, ...]) -> bool:
    """Whether one of these ranges has public addresses besides those of the relay."""
    return any(
        network.prefixlen == 0 or not (network.is_private or network.subnet_of(RELAY))
        for network in _networks(ranges)
    )


def _networks(ranges: tuple[str, ...]) -> list[IPv4Network]:
    return [IPv4Network(text, strict=False) for text in ranges if ":" not in text]


def _allows_ssh(allowed: _Allowed) -> bool:
    if allowed.protocol.lower() not in PROTOCOLS:
        return False
    bounds = [ports.partition("-") for ports in allowed.ports]
    return not bounds or any(int(low) <= SSH_PORT <= int(high or low) for low, _, high in bounds)
