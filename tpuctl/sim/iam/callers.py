"""Finds out who sent a request: programs on a host call as the node's service account, others as the user.

- Decides whether the caller of the current request has a permission; nothing is decided without `--iam`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from aiohttp import web

from tpuctl.sim.iam.enforcement import Binding, Policies, Resource, bucket_bindings
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.network.tunnels import client_of

BucketPolicy = Callable[[str], tuple[str, JsonObject] | None]
"""Bucket -> its project and its policy; None for a bucket that does not exist."""


@dataclass(frozen=True)
class Access:
    """The policies of the simulated cloud."""

    policies: Policies
    bucket_policy: BucketPolicy

    def allows(self, member: str, permission: str, resource: Resource) -> bool:
        """Return whether a member (`user:...`, '' for anonymous) has a permission on a resource."""
        return self.policies.allows(member, permission, resource, self._bindings(resource))

    def bucket(self, name: str) -> Resource | None:
        """Return a bucket; None if it does not exist."""
        stored = self.bucket_policy(name)
        if stored is None:
            return None
        return Resource(stored[0], f"projects/_/buckets/{name}", "storage.googleapis.com/Bucket", name)

    def object(self, bucket: str, name: str) -> Resource | None:
        """Return an object, existing or not; None if its bucket does not exist."""
        stored = self.bucket_policy(bucket)
        if stored is None:
            return None
        path = f"projects/_/buckets/{bucket}/objects/{name}"
        return Resource(stored[0], path, "storage.googleapis.com/Object", bucket)

    def _bindings(self, resource: Resource) -> tuple[Binding, ...]:
        if resource.account:
            return tuple(self.policies.accounts.get(resource.account, ()))
        stored = self.bucket_policy(resource.bucket) if resource.bucket else None
        return bucket_bindings(json.dumps(stored[1], sort_keys=True)) if stored else ()


@dataclass(frozen=True)
class Caller:
    """Who sent a request."""

    member: str
    """`user:E-MAIL`, `serviceAccount:E-MAIL` or `group:E-MAIL`; '' for an anonymous caller."""
    access: Access

    @property
    def label(self) -> str:
        """How Google names the caller in errors."""
        return self.member.partition(":")[2] or "Anonymous caller"

    def may(self, permission: str, resource: Resource) -> bool:
        """Return whether the caller has a permission on a resource."""
        return self.access.allows(self.member, permission, resource)


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller | None:
    """Return the caller of the current request; None for the simulator itself and without `--iam`."""
    return _caller.get()


def set_caller(caller: Caller | None) -> None:
    """Set the caller of the current request, for the rest of its task."""
    _caller.set(caller)


Address = tuple[str, int]
AccountOf = Callable[[str], str]
HostOf = Callable[[Address], Awaitable[str | None]]

BEARER = "bearer "


class Context(Protocol):
    """The methods of grpc.aio.ServicerContext that tell who calls."""

    def peer(self) -> str: ...

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...


class Callers:
    """Sets the caller of each request.

    `host_of` returns the mark of the host whose program has a connection's other end, '' for a program of no
    host, None for a connection that no program has; `account_of_mark` and `account_of_token` return the
    address of a node's service account, '' for an unknown mark or token. Where the system does not tell
    whose a connection is, `host_of` is None, and tokens alone decide.
    """

    def __init__(
        self,
        access: Access,
        user: str,
        host_of: HostOf | None,
        account_of_mark: AccountOf,
        account_of_token: AccountOf,
    ) -> None:
        self._access = access
        self._user = user
        self._host_of = host_of
        self._account_of_mark = account_of_mark
        self._account_of_token = account_of_token
        self._known: WeakKeyDictionary[asyncio.BaseTransport, str] = WeakKeyDictionary()

    async def enter_call(self, context: Context) -> None:
        """Make the sender of a gRPC call the caller of the current task."""
        metadata = dict(context.invocation_metadata() or ())
        await self._enter(_grpc_address(context.peer()), str(metadata.get("authorization", "")))

    async def enter_request(self, request: web.Request) -> None:
        """Make the sender of a request over HTTP the caller of the current task."""
        peer = request.transport.get_extra_info("peername") if request.transport else None
        address = (str(peer[0]), int(peer[1])) if peer else None
        await self._enter(address, request.headers.get("Authorization", ""), request.transport)

    async def _enter(
        self, address: Address | None, authorization: str, connection: asyncio.BaseTransport | None = None
    ) -> None:
        """Find the sender; the process at the other end of a connection is looked up once."""
        if self._host_of is None:
            member = self._by_token(authorization)
        else:
            member = self._known.get(connection, "") if connection is not None else ""
            member = member or await self._by_process(self._host_of, address)
            if connection is not None:
                self._known[connection] = member
        set_caller(Caller(member, self._access))

    async def _by_process(self, host_of: HostOf, address: Address | None) -> str:
        mark = await host_of(client_of(address)) if address else None
        if mark is None:
            return ""
        return f"serviceAccount:{self._account_of_mark(mark)}" if mark else self._user

    def _by_token(self, authorization: str) -> str:
        kind, token = authorization[: len(BEARER)], authorization[len(BEARER) :].strip()
        account = self._account_of_token(token) if kind.lower() == BEARER else ""
        return f"serviceAccount:{account}" if account else self._user


def _grpc_address(peer: str) -> Address | None:
    """Return the address in gRPC's name of a peer, such as `ipv4:127.0.0.1:4711`."""
    kind, _, address = peer.partition(":")
    host, _, port = unquote(address).rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None
