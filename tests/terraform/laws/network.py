"""Laws about who reaches the hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from tests.terraform.laws.planned import Planned, Resource, is_later

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

IAP = "35.235.240.0/20"
"""From which Identity-Aware Proxy forwards TCP."""
MOST_PUBLIC = {4: 2**16, 6: 2**96}
"""Public addresses that all rules together may let in: an office or a VPN, never a part of the internet."""
PRIVATE = [
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10")
]
SOURCES = ("source_ranges", "source_tags", "source_service_accounts")


def no_open_ingress(plan: Planned) -> Iterator[str]:
    """No rule, and no rules together, let in a wide part of the internet."""
    networks: list[Network] = []
    for rule in _allowing(plan):
        if not any(rule.values.get(name) for name in SOURCES):
            yield f"{rule.address} names no source, so that everybody may connect"
        for text in _ranges(rule):
            network = _network(text)
            if network is None:
                yield f"{rule.address} has the source {text!r}, which is no range of addresses"
            elif _public_addresses([network]) > MOST_PUBLIC[network.version]:
                yield f"{rule.address} lets in {text}, a wide part of the internet"
            else:
                networks.append(network)
    for version, most in MOST_PUBLIC.items():
        together = _public_addresses(network for network in networks if network.version == version)
        if together > most:
            yield f"the rules together let in {together} public addresses; {most} are the most"


def ssh_only_from_known_ranges(plan: Planned) -> Iterator[str]:
    """Port 22 is reached from IAP, the plan's own subnetworks and what the settings configure."""
    subnets = [resource.values.get("ip_cidr_range") for resource in plan.of("google_compute_subnetwork")]
    known = [network for text in (IAP, *subnets, *plan.ssh_ranges) if (network := _network(text))]
    for rule in _allowing(plan):
        if not any(_covers_ssh(block) for block in rule.values["allow"]):
            continue
        for name in SOURCES[1:]:
            if rule.values.get(name):
                yield f"{rule.address} opens port 22 by {name}, not to a range"
        for text in _ranges(rule):
            network = _network(text)
            if network is None or not any(_inside(network, other) for other in known):
                yield f"{rule.address} opens port 22 to {text}: neither IAP's range nor a configured one"


def _allowing(plan: Planned) -> Iterator[Resource]:
    for rule in plan.of("google_compute_firewall"):
        values = rule.values
        if values.get("allow") and values.get("direction") != "EGRESS" and values.get("disabled") is not True:
            yield rule


def _ranges(rule: Resource) -> list[Any]:
    ranges = rule.values.get("source_ranges", [])
    return ranges if isinstance(ranges, list) else [ranges]


def _network(text: Any) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if isinstance(text, str) else None
    except ValueError:
        return None


def _public_addresses(networks: Iterable[Network]) -> int:
    public = [part for network in networks for part in _without_private(network)]
    return sum(network.num_addresses for network in ipaddress.collapse_addresses(public))


def _without_private(network: Network) -> list[Network]:
    parts = [network]
    for private in PRIVATE:
        if private.version == network.version:
            parts = [rest for part in parts for rest in _without(part, private)]
    return parts


def _without(network: Network, other: Network) -> Iterator[Network]:
    if not network.overlaps(other):
        yield network
    elif _inside(other, network):
        yield from network.address_exclude(other)


def _inside(network: Network, other: Network) -> bool:
    return network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]


def _covers_ssh(block: Any) -> bool:
    """Return whether an `allow` block may let port 22 in; what is not known yet may."""
    protocol, ports = block.get("protocol"), block.get("ports")
    if not is_later(protocol) and str(protocol).lower() not in ("tcp", "6", "all"):
        return False
    if not isinstance(ports, list) or not ports:
        return True
    return any(_in_range(port, 22) for port in ports)


def _in_range(ports: Any, port: int) -> bool:
    if is_later(ports):
        return True
    first, _, last = str(ports).partition("-")
    return int(first) <= port <= int(last or first)
