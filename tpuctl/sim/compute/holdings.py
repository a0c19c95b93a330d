"""Serves what a project keeps and pays for beside its TPUs: persistent disks and static addresses.

- Stores the rules of the firewall of each project's network; they filter SSH from outside alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from aiohttp import web

from tpuctl.sim.compute.answers import PROJECT, authorize, base, error, not_found, operation_resource
from tpuctl.sim.compute.operations import Operations
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.state import Database, RecordTable
from tpuctl.sim.token_server import stable_number

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


SCOPES = {"disks": "zones", "addresses": "regions"}
"""Where the resources of each collection are."""
KINDS = {"disks": "disk", "addresses": "address"}
DEFAULTS: dict[str, JsonObject] = {
    "disks": {"sizeGb": "500", "status": "READY", "type": "pd-standard"},
    "addresses": {"addressType": "EXTERNAL", "status": "RESERVED", "networkTier": "PREMIUM"},
}
"""Of fields that were not sent: https://cloud.google.com/compute/docs/reference/rest/v1/disks"""

Handler = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True)
class Holding:
    """The stored record of one resource; `name` is `PROJECT/COLLECTION/PLACE/NAME`."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0


class HoldingsApi:
    """The methods of `disks` and `addresses` that make, list and delete them."""

    def __init__(self, database: Database, operations: Operations) -> None:
        self._records = RecordTable(database, "compute holding", Holding)
        self._operations = operations

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Yield HTTP method, path and handler."""
        for collection, scope in SCOPES.items():
            listed = f"{PROJECT}/{scope}/{{place}}/{{collection:{collection}}}"
            yield "GET", f"{PROJECT}/aggregated/{{collection:{collection}}}", self.list_all
            yield "GET", listed, self.list
            yield "POST", listed, self.insert
            yield "GET", f"{listed}/{{name}}", self.get
            yield "DELETE", f"{listed}/{{name}}", self.delete

    async def list_all(self, request: web.Request) -> web.Response:
        """Those of every place, by place."""
        parts = request.match_info
        project, collection = parts["project"], parts["collection"]
        authorize(f"compute.{collection}.list", project)
        items: dict[str, dict[str, list[JsonObject]]] = {}
        for record in self._of(project, collection):
            place = f"{SCOPES[collection]}/{record.name.split('/')[2]}"
            items.setdefault(place, {collection: []})[collection].append(_resource(record, request))
        path = f"projects/{project}/aggregated/{collection}"
        kind = f"compute#{KINDS[collection]}AggregatedList"
        link = {"id": path, "selfLink": f"{base(request)}/{path}"}
        return web.json_response({"kind": kind, "items": items, **link})

    async def list(self, request: web.Request) -> web.Response:
        """Those of one place."""
        parts = request.match_info
        authorize(f"compute.{parts['collection']}.list", parts["project"])
        records = self._of(parts["project"], parts["collection"])
        items = [_resource(each, request) for each in records if f"/{parts['place']}/" in each.name]
        kind = f"compute#{KINDS[parts['collection']]}List"
        return web.json_response({"kind": kind, **({"items": items} if items else {})})

    async def get(self, request: web.Request) -> web.Response:
        """One."""
        authorize(f"compute.{request.match_info['collection']}.get", request.match_info["project"])
        record = self._records.get(_name(request))
        return _missing(request) if record is None else web.json_response(_resource(record, request))

    async def insert(self, request: web.Request) -> web.Response:
        """Make one."""
        parts = request.match_info
        authorize(f"compute.{parts['collection']}.create", parts["project"])
        try:
            sent = json.loads(await request.read())
        except ValueError:
            sent = None
        if not isinstance(sent, dict) or not NAME.fullmatch(str(sent.get("name", ""))):
            return error(400, "Invalid value for field 'resource.name'.")
        name = f"{_folder(request)}/{sent['name']}"
        if self._records.get(name):
            resource = f"projects/{parts['project']}{_target(request, sent['name'])}"
            return error(409, f"The resource '{resource}' already exists")
        self._records.put(Holding(name, DEFAULTS[parts["collection"]] | sent, time.time()))
        return self._done(request, "insert", sent["name"])

    async def delete(self, request: web.Request) -> web.Response:
        """Delete one."""
        authorize(f"compute.{request.match_info['collection']}.delete", request.match_info["project"])
        if self._records.get(_name(request)) is None:
            return _missing(request)
        self._records.remove(_name(request))
        return self._done(request, "delete", request.match_info["name"])

    def _of(self, project: str, collection: str) -> Iterator[Holding]:
        prefix = f"{project}/{collection}/"
        return (record for record in self._records.all() if record.name.startswith(prefix))

    def _done(self, request: web.Request, kind: str, name: str) -> web.Response:
        operation = self._operations.record(request.match_info["project"], kind, _target(request, name))
        return web.json_response(operation_resource(operation, base(request)))


def _folder(request: web.Request) -> str:
    parts = request.match_info
    return f"{parts['project']}/{parts['collection']}/{parts['place']}"


def _name(request: web.Request) -> str:
    return f"{_folder(request)}/{request.match_info['name']}"


def _target(request: web.Request, name: str) -> str:
    """Return the path of a resource below its project."""
    parts = request.match_info
    return f"/{SCOPES[parts['collection']]}/{parts['place']}/{parts['collection']}/{name}"


def _missing(request: web.Request) -> web.Response:
    parts = request.match_info
    return not_found(f"projects/{parts['project']}{_target(request, parts['name'])}")


def _resource(record: Holding, request: web.Request) -> JsonObject:
    project, collection, place, name = record.name.split("/")
    scope, url = SCOPES[collection], f"{base(request)}/projects/{project}"
    answer: JsonObject = {
        **record.fields,
        "kind": f"compute#{KINDS[collection]}",
        "id": str(stable_number(record.name)),
        "name": name,
        "creationTimestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        scope.removesuffix("s"): f"{url}/{scope}/{place}",
        "selfLink": f"{url}/{scope}/{place}/{collection}/{name}",
    }
    if collection == "disks":
        kind = str(record.fields["type"]).rpartition("/")[2]
        return answer | {
            "type": f"{url}/zones/{place}/diskTypes/{kind}",
            "sizeGb": str(record.fields["sizeGb"]),
        }
    address = f"203.0.113.{stable_number(record.name) % 254 + 1}"
    return {"address": address} | answer
