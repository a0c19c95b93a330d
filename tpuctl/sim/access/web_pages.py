"""Tells the requests of web pages from those of programs, by headers that a page cannot change.

A browser runs as the simulator's user, so the user says nothing about it. The simulator serves no pages, so
every request that a page made is a foreign one. A host name that an attacker owns can be made to resolve to
127.0.0.1 (DNS rebinding): such a request looks like one of the same origin, and its Host gives it away.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from multidict import MultiMapping

SERVED_DOMAINS = ("googleapis.com", "localhost")
"""Names below these, and they themselves, never resolve to this machine by an attacker's choice."""
SERVED_NAMES = ("metadata.google.internal", "tunnel.cloudproxy.app")
TUNNELLER = "bot:iap-tunneler"
"""The Origin of clients of IAP's relay; no page has an origin of this scheme."""


def page_refusal(headers: MultiMapping[str]) -> str:
    """Return why a request is refused before its body is read; '' for one that no page made."""
    for origin in headers.getall("Origin", ()):
        if origin != TUNNELLER:
            return f"it comes from a web page (Origin: {origin})"
    for site in headers.getall("Sec-Fetch-Site", ()):
        if site != "none":
            return f"it comes from a web page (Sec-Fetch-Site: {site})"
    for host in headers.getall("Host", ()):
        if not is_served(host):
            return f"the simulator is not called {host}"
    return ""


@lru_cache(256)
def is_served(host: str) -> bool:
    """Return whether a Host header names loopback or a name of Google's that the simulator serves."""
    name = _name_of(host).lower().removesuffix(".")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name in SERVED_NAMES or any(f".{name}".endswith(f".{domain}") for domain in SERVED_DOMAINS)


def _name_of(host: str) -> str:
    """Return the name without port and brackets; '' where the port is none."""
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        name = name if closed else ""
    else:
        name, _, rest = host.partition(":")
        rest = f":{rest}" if rest or host.endswith(":") else ""
    return name if not rest or (rest[0] == ":" and rest[1:].isdecimal()) else ""
