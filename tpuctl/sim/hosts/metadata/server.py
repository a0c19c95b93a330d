"""Serves the metadata of one host, in place of `metadata.google.internal`.

- Stores guest attributes: facts that a host publishes, readable through the Cloud TPU API.
- Builds the content of a TPU VM's metadata server: the tree below `/computeMetadata/v1`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from aiohttp import web

from tpuctl.accelerators import Accelerator, accelerator
from tpuctl.sim.access import Guard, refused
from tpuctl.sim.hosts.metadata.identity import Identity
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, text_at
from tpuctl.sim.records import GuestAttribute, Host, Notices
from tpuctl.sim.state import write_private
from tpuctl.sim.token_server import project_number, service_account, stable_number


class GuestAttributes:
    """The attributes of one host, two levels deep, in a JSON file: `{namespace: {key: value}}`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tree(self) -> dict[str, dict[str, str]]:
        """Return all attributes by namespace and key."""
        try:
            tree: dict[str, dict[str, str]] = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        return tree

    def items(self) -> list[GuestAttribute]:
        """Return all attributes in the order in which they were written."""
        return [
            GuestAttribute(namespace, key, value)
            for namespace, values in self.tree().items()
            for key, value in values.items()
        ]

    def put(self, namespace: str, key: str, value: str) -> None:
        """Write one attribute."""
        tree = self.tree()
        tree.setdefault(namespace, {})[key] = value
        self._write(tree)

    def publish(self, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the content of these namespaces."""
        self._write({**self.tree(), **{name: dict(values) for name, values in attributes.items()}})

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one attribute; returns whether it existed."""
        tree = self.tree()
        if tree.get(namespace, {}).pop(key, None) is None:
            return False
        self._write({name: values for name, values in tree.items() if values})
        return True

    def _write(self, tree: dict[str, dict[str, str]]) -> None:
        write_private(self._path, json.dumps(tree, indent=1).encode())


SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
CHIP_GRIDS = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
"""Chips of a host -> their layout."""
GENERATION_TYPES = {"v5e": "V5LITE_POD"}
"""AcceleratorConfig.Type where it is not the generation's own name."""


@dataclass(frozen=True)
class Instance:
    """A host and its metadata."""

    host: Host
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The node's own metadata, `ssh-keys` and the user's keys."""
    project_metadata: Mapping[str, str] = field(default_factory=dict)
    """That of all instances of the project."""
    notices: Notices = field(default_factory=Notices)


def metadata_tree(instance: Instance) -> JsonObject:
    """Return the tree: dicts and lists of dicts are directories, all else is a value.

    Names and shapes: Compute Engine's metadata documentation; the attributes of a TPU VM as TensorFlow's and
    JAX's cluster resolvers read them.
    """
    return {"instance": _instance(instance), **_project(instance.host.project, instance.project_metadata)}


def client_machine_tree(project: str) -> JsonObject:
    """Return the tree of a machine outside the slices, where Google's clients find credentials."""
    return {
        "instance": {"attributes": {}, "service-accounts": _accounts(service_account(project)), "tags": []},
        **_project(project, {}),
    }


def _instance(instance: Instance) -> JsonObject:
    host, number = instance.host, project_number(instance.host.project)
    preemptible = host.preemptible
    return {
        "attributes": {**instance.metadata, **_tpu_attributes(host)},
        "cpu-platform": "AMD Rome",
        "description": "",
        "hostname": f"{host.hostname}.{host.zone}.c.{host.project}.internal",
        "id": stable_number(f"{host.node_uid}/{host.worker}"),
        "image": "",
        "machine-type": f"projects/{number}/machineTypes/n2d-48-24-v2-tpu",
        "maintenance-event": instance.notices.maintenance_event,
        "name": host.hostname,
        "network-interfaces": [_network_interface(host, number)],
        "preempted": _upper(instance.notices.preempted),
        "scheduling": {
            "automatic-restart": _upper(not preemptible),
            "on-host-maintenance": "TERMINATE",
            "preemptible": _upper(preemptible),
        },
        "service-accounts": _accounts(host.service_account),
        "tags": [],
        "zone": f"projects/{number}/zones/{host.zone}",
    }


def _tpu_attributes(host: Host) -> dict[str, str]:
    return {
        "accelerator-type": host.accelerator_type,
        "agent-worker-number": str(host.worker),
        "instance-id": host.node_id,
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in _tpu_env(host).items()),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{address}" for address in host.peers),
    }


def _tpu_env(host: Host) -> dict[str, str]:
    """The variables in which libtpu and JAX find the shape of the slice."""
    kind = accelerator(host.accelerator_type)
    return {
        "ACCELERATOR_TYPE": host.accelerator_type,
        "CHIPS_PER_HOST_BOUNDS": _comma(CHIP_GRIDS[kind.chips_per_host]),
        "CONSUMER_PROJECT_ID": host.project,
        "HOST_BOUNDS": _comma(host_bounds(kind)),
        "NODE_ID": host.node_id,
        "PREEMPTIBLE": str(host.preemptible).lower(),
        "RUNTIME_VERSION": host.runtime_version,
        "TOPOLOGY": kind.topology,
        "TYPE": GENERATION_TYPES.get(kind.generation, kind.generation.upper()),
        "WORKER_ID": str(host.worker),
        "ZONE": host.zone,
        **_megascale(host),
    }


def _megascale(host: Host) -> dict[str, str]:
    """The variables by which slices find each other; JAX's coordinator is the same host."""
    if not host.slices:
        return {}
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": host.slices[0],
        "MEGASCALE_NUM_SLICES": str(len(host.slices)),
        "MEGASCALE_SLICE_ID": str(host.slices.index(host.peers[0])),
    }


def host_bounds(kind: Accelerator) -> tuple[int, ...]:
    """Return the layout of a slice's hosts in three dimensions."""
    chips = ([int(side) for side in kind.topology.split("x")] + [1])[:3]
    return tuple(side // own for side, own in zip(chips, CHIP_GRIDS[kind.chips_per_host], strict=True))


def _network_interface(host: Host, number: int) -> JsonObject:
    return {
        "access-configs": [{"external-ip": host.address, "type": "ONE_TO_ONE_NAT"}] if host.external else [],
        "ip": host.address,
        "mac": "42:01:" + ":".join(f"{int(part):02x}" for part in host.address.split(".")),
        "network": f"projects/{number}/networks/default",
    }


def _project(project: str, metadata: Mapping[str, str]) -> JsonObject:
    return {
        "project": {
            "attributes": dict(metadata),
            "numeric-project-id": project_number(project),
            "project-id": project,
        },
        "universe": {"universe-domain": "googleapis.com"},
    }


def _accounts(email: str) -> JsonObject:
    account = {"aliases": ["default"], "email": email, "scopes": SCOPES}
    return {"default": account, email: account}


def _upper(value: bool) -> str:
    return str(value).upper()


def _comma(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


FREE_NAMES = ("attributes", "guest-attributes")
"""Directories whose names are the user's; JSON keeps these unchanged."""
ROOT = "/computeMetadata/v1"
FLAVOR = {"Metadata-Flavor": "Google"}
HEADERS = {**FLAVOR, "Server": "Metadata Server for VM"}
GUEST = ["instance", "guest-attributes"]
ACCOUNTS = ["instance", "service-accounts"]
TOKEN_LIFETIME = 3599
SHUTDOWN = 0.01
"""Seconds that a request may still take when the host ends; clients that wait for a change are cut off."""

FORMATS = ("text", "json")
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


class BadRequest(Exception):
    """A request with a bad parameter; the text says which."""


class MetadataServer:
    """Answers for one machine with the content of `tree`, which `show` replaces; notes each request."""

    def __init__(
        self,
        tree: JsonObject,
        identity: Identity,
        guest: GuestAttributes | None,
        guard: Guard,
        note: Callable[[str, str], None] = lambda method, path: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tree = tree
        self._identity = identity
        self._guest = guest
        self._guard = guard
        self._note = note
        self._clock = clock
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._web: web.Server | None = None

    def show(self, tree: JsonObject) -> None:
        """Replace the tree, and wake clients that wait for a change."""
        self._tree = tree
        self._wake()

    async def open(self, listener: socket.socket) -> None:
        """Serve on `listener`, besides those before it."""
        if self._web is None:
            self._web = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._servers.append(await asyncio.get_running_loop().create_server(self._web, sock=listener))

    async def close(self) -> None:
        """Stop serving; requests that wait are cut off."""
        if self._web is None:
            return
        for server in self._servers:
            server.close()
        await self._web.shutdown(SHUTDOWN)
        await asyncio.gather(*(server.wait_closed() for server in self._servers))
        self._servers.clear()
        self._web = None

    async def cut(self) -> None:
        """Cut the open connections."""
        if self._web is not None:
            await self._web.shutdown(0)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Answer with the time of the simulator's clock, by which programs on a host correct their own."""
        response = await self._content(request)
        response.headers["Date"] = formatdate(self._clock(), usegmt=True)
        return response

    async def _content(self, request: web.BaseRequest) -> web.Response:
        reason = self._guard.refusal(request)
        if reason:
            return refused(reason)
        self._note(request.method, request.path)
        if request.path == "/":
            return _text("0.1/\ncomputeMetadata/\n")
        if request.path != ROOT and not request.path.startswith(f"{ROOT}/"):
            return _refused(404, "Not Found")
        if request.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in request.headers:
            return _refused(403, "Forbidden: missing required header Metadata-Flavor: Google")
        names = [name for name in request.path[len(ROOT) :].split("/") if name]
        method = self._methods().get(request.method)
        if method is None:
            return _refused(405, "Method Not Allowed")
        try:
            return await method(request, names)
        except KeyError:
            return _refused(404, "Not Found")
        except BadRequest as bad:
            return _refused(400, f"Bad Request: {bad}")

    def _methods(self) -> dict[str, Callable[[web.BaseRequest, list[str]], Awaitable[web.Response]]]:
        return {
            "GET": self._get,
            "HEAD": self._get,
            "PUT": self._put,
            "POST": self._put,
            "DELETE": self._delete,
        }

    async def _get(self, request: web.BaseRequest, names: list[str]) -> web.Response:
        if names[:2] == ACCOUNTS and len(names) == 4:
            account = walk(self._tree, names[:3])
            if not isinstance(account, dict):
                raise KeyError(names)
            if names[3] == "token":
                return self._token_answer()
            if names[3] == "identity":
                return await self._identity_answer(request, text_at(account, "email"))
        return _show(request, names, await self._value(request, names))

    async def _value(self, request: web.BaseRequest, names: list[str]) -> JsonValue:
        """Return the node at this path; with `wait_for_change`, once it differs from `last_etag`."""
        value, timeout = self._lookup(names), _seconds(request)
        if not _flag(request, "wait_for_change"):
            return value
        last_etag = request.query.get("last_etag", etag(value))
        try:
            return await asyncio.wait_for(self._changed_from(names, last_etag), timeout)
        except TimeoutError:
            return self._lookup(names)

    async def _changed_from(self, names: list[str], last_etag: str) -> JsonValue:
        while etag(value := self._lookup(names)) == last_etag:
            await self._changed.wait()
        return value

    def _lookup(self, names: list[str]) -> JsonValue:
        if names[:2] == GUEST and self._guest:
            return walk(self._guest.tree(), names[2:])
        return walk(self._tree, names)

    def _token_answer(self) -> web.Response:
        token = {
            "access_token": self._identity.access_token(),
            "expires_in": TOKEN_LIFETIME,
            "token_type": "Bearer",
        }
        return _json(json.dumps(token))

    async def _identity_answer(self, request: web.BaseRequest, email: str) -> web.Response:
        audience = request.query.get("audience", "")
        if not audience:
            raise BadRequest("non-empty audience parameter required")
        full = request.query.get("format", "standard").lower() == "full"
        # in a thread: the first of all makes the key, which takes a moment
        token = await asyncio.to_thread(
            self._identity.token, audience, email, self._details() if full else None
        )
        return _text(token)

    def _details(self) -> JsonObject:
        """The facts of the instance that are claims of an identity token in full format."""
        instance, project = object_at(self._tree, "instance"), object_at(self._tree, "project")
        names = {"instance_id": "id", "instance_name": "name", "zone": "zone"}
        claims = {claim: str(instance[name]) for claim, name in names.items() if name in instance}
        return {
            "project_id": project["project-id"],
            "project_number": project["numeric-project-id"],
            **claims,
            "zone": claims.get("zone", "").rpartition("/")[2],
        }

    async def _put(self, request: web.BaseRequest, names: list[str]) -> web.Response:
        guest = self._guest_at(names)
        try:
            value = (await request.read()).decode()
        except UnicodeDecodeError:
            raise BadRequest("the value is not UTF-8") from None
        guest.put(names[2], names[3], value)
        self._wake()
        return _text("")

    async def _delete(self, request: web.BaseRequest, names: list[str]) -> web.Response:
        if not self._guest_at(names).delete(names[2], names[3]):
            return _refused(404, "Not Found")
        self._wake()
        return _text("")

    def _guest_at(self, names: list[str]) -> GuestAttributes:
        """Return the guest attributes, if this is the path of one; raises KeyError."""
        if names[:2] != GUEST or len(names) != 4 or self._guest is None:
            raise KeyError(names)
        return self._guest

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _show(request: web.BaseRequest, names: list[str], value: JsonValue) -> web.Response:
    tag, alt = etag(value), request.query.get("alt")
    if alt not in (None, *FORMATS):
        raise BadRequest(f"alt is one of {', '.join(FORMATS)}")
    if not is_directory(value):
        return _json(as_json(value, names), tag) if alt == "json" else _text(text(value), tag)
    if _flag(request, "recursive"):
        return _text(flat(value), tag) if alt == "text" else _json(as_json(value, names), tag)
    if not request.path.endswith("/"):
        location = str(request.rel_url.with_path(f"{request.path}/", keep_query=True))
        return web.Response(status=301, headers={**HEADERS, "Location": location})
    return _text(listing(value), tag)


def _flag(request: web.BaseRequest, name: str) -> bool:
    value = request.query.get(name, "false").lower()
    if value not in TRUTHS:
        raise BadRequest(f"{name} is true or false")
    return TRUTHS[value]


def _seconds(request: web.BaseRequest) -> float | None:
    """Return `timeout_sec`; without it, or with 0, a client waits for ever (Google's documentation)."""
    try:
        seconds = float(request.query.get("timeout_sec") or 0)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise BadRequest("timeout_sec is a number of seconds")
    return seconds or None


def _text(content: str, tag: str = "") -> web.Response:
    return _response(content, "application/text", tag)


def _json(content: str, tag: str = "") -> web.Response:
    return _response(content, "application/json", tag)


def _response(content: str, kind: str, tag: str) -> web.Response:
    """Send bytes: aiohttp adds a charset to text, and oauth2client compares the complete content type."""
    headers = {**HEADERS, "ETag": tag} if tag else HEADERS
    return web.Response(body=content.encode(), content_type=kind, headers=headers)


def _refused(status: int, reason: str) -> web.Response:
    return web.Response(status=status, text=f"{reason}\n", headers=HEADERS)


# Formats values and directories of the metadata server as text or JSON.


def is_directory(node: JsonValue) -> bool:
    """Return whether a node of the tree has entries of its own; a list of plain values is a value."""
    return isinstance(node, dict) or (
        isinstance(node, list) and any(isinstance(element, dict) for element in node)
    )


def walk(tree: JsonValue, names: list[str]) -> JsonValue:
    """Return the node at this path; raises KeyError."""
    for name in names:
        if not is_directory(tree):
            raise KeyError(name)
        tree = dict(_entries(tree))[name]
    return tree


def listing(directory: JsonValue) -> str:
    """Return the names in a directory, one a line, those of directories with a slash."""
    return "".join(
        f"{name}/\n" if is_directory(value) else f"{name}\n" for name, value in _entries(directory)
    )


def text(value: JsonValue) -> str:
    """Return one value as text."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def flat(directory: JsonValue) -> str:
    """Return everything below a directory, a line `path value` each."""
    return "".join(f"{path} {text(value)}\n" for path, value in _leaves(directory, ""))


def as_json(value: JsonValue, names: list[str]) -> str:
    """Return the node at the path `names` as JSON, in which Google writes `zoneName` for `zone-name`."""
    return json.dumps(_camel(value, free=any(name in FREE_NAMES for name in names)))


def etag(value: JsonValue) -> str:
    """Return a tag that changes with the value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _entries(directory: JsonValue) -> list[tuple[str, JsonValue]]:
    if isinstance(directory, dict):
        return list(directory.items())
    assert isinstance(directory, list), "a directory"
    return [(str(index), value) for index, value in enumerate(directory)]


def _leaves(node: JsonValue, path: str) -> Iterator[tuple[str, JsonValue]]:
    for name, value in _entries(node):
        if is_directory(value):
            yield from _leaves(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def _camel(node: JsonValue, *, free: bool) -> JsonValue:
    if isinstance(node, list):
        return [_camel(element, free=free) for element in node]
    if not isinstance(node, dict):
        return node
    return {
        (name if free or "@" in name else _camel_name(name)): _camel(value, free=free or name in FREE_NAMES)
        for name, value in node.items()
    }


def _camel_name(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)
