"""The metadata server of one host: what `metadata.google.internal` is on a real one."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tpuctl.sim.hosts.guest import GuestAttributes
from tpuctl.sim.hosts.metadata_format import as_json, etag, flat, is_directory, listing, text, walk
from tpuctl.sim.hosts.metadata_tree import Instance, metadata_tree

ROOT = "/computeMetadata/v1"
FLAVOR = {"Metadata-Flavor": "Google"}
HEADERS = {**FLAVOR, "Server": "Metadata Server for VM"}
GUEST = ["instance", "guest-attributes"]
ACCOUNTS = ["instance", "service-accounts"]
TOKEN_LIFETIME = 3599
SHUTDOWN = 0.01
"""Seconds a request may still take when the host goes; clients that wait for a change are cut off."""


class MetadataServer:
    """Answers for one host; what it answers changes by `show`."""

    def __init__(self, instance: Instance, guest: GuestAttributes) -> None:
        self._guest = guest
        self._token = f"ya29.{secrets.token_urlsafe(32)}"
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._web: web.Server | None = None
        self.show(instance)

    def show(self, instance: Instance) -> None:
        """Show another state of the instance from now on, and wake who waits for a change."""
        self.instance = instance
        self._tree = metadata_tree(instance)
        self._wake()

    async def open(self, listener: socket.socket) -> None:
        """Serve on `listener`."""
        self._web = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(self._web, sock=listener)

    async def close(self) -> None:
        """Stop serving; requests that wait are cut off."""
        if self._server is None or self._web is None:
            return
        self._server.close()
        await self._web.shutdown(SHUTDOWN)
        await self._server.wait_closed()
        self._server = self._web = None

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/":
            return _text("0.1/\ncomputeMetadata/\n")
        if request.path != ROOT and not request.path.startswith(f"{ROOT}/"):
            return _refused(404, "Not Found")
        if request.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in request.headers:
            return _refused(403, "Forbidden: missing required header Metadata-Flavor: Google")
        names = [name for name in request.path[len(ROOT) :].split("/") if name]
        method = self._methods().get(request.method)
        return await method(request, names) if method else _refused(405, "Method Not Allowed")

    def _methods(self) -> dict[str, Callable[[web.BaseRequest, list[str]], Awaitable[web.Response]]]:
        return {
            "GET": self._get,
            "HEAD": self._get,
            "PUT": self._put,
            "POST": self._put,
            "DELETE": self._delete,
        }

    async def _get(self, request: web.BaseRequest, names: list[str]) -> web.Response:
        try:
            if names[:2] == ACCOUNTS and names[3:] == ["token"]:
                walk(self._tree, names[:3])
                return self._token_answer()
            value = await self._value(request, names)
        except KeyError:
            return _refused(404, "Not Found")
        return _show(request, names, value)

    async def _value(self, request: web.BaseRequest, names: list[str]) -> Any:
        """Return what is at this path; with `wait_for_change` once it is not what the client knows."""
        value = self._lookup(names)
        if not _asks(request, "wait_for_change"):
            return value
        known = request.query.get("last_etag", etag(value))
        timeout = request.query.get("timeout_sec")
        try:
            return await asyncio.wait_for(
                self._changed_from(names, known), float(timeout) if timeout else None
            )
        except asyncio.TimeoutError:
            return self._lookup(names)

    async def _changed_from(self, names: list[str], known: str) -> Any:
        while etag(value := self._lookup(names)) == known:
            await self._changed.wait()
        return value

    def _lookup(self, names: list[str]) -> Any:
        if names[:2] == GUEST:
            return walk(self._guest.tree(), names[2:])
        return walk(self._tree, names)

    def _token_answer(self) -> web.Response:
        token = {"access_token": self._token, "expires_in": TOKEN_LIFETIME, "token_type": "Bearer"}
        return _json(json.dumps(token))

    async def _put(self, request: web.BaseRequest, names: list[str]) -> web.Response:
        if names[:2] != GUEST or len(names) != 4:
            return _refused(404, "Not Found")
        self._guest.put(names[2], names[3], await request.text())
        self._wake()
        return _text("")

    async def _delete(self, request: web.BaseRequest, names: list[str]) -> web.Response:
        if names[:2] != GUEST or len(names) != 4 or not self._guest.delete(names[2], names[3]):
            return _refused(404, "Not Found")
        self._wake()
        return _text("")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _show(request: web.BaseRequest, names: list[str], value: Any) -> web.Response:
    tag, alt = etag(value), request.query.get("alt")
    if not is_directory(value):
        return _json(as_json(value, names), tag) if alt == "json" else _text(text(value), tag)
    if _asks(request, "recursive"):
        return _text(flat(value), tag) if alt == "text" else _json(as_json(value, names), tag)
    if not request.path.endswith("/"):
        location = str(request.rel_url.with_path(f"{request.path}/", keep_query=True))
        return web.Response(status=301, headers={**HEADERS, "Location": location})
    return _text(listing(value), tag)


def _asks(request: web.BaseRequest, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _text(content: str, tag: str = "") -> web.Response:
    return _response(content, "application/text", tag)


def _json(content: str, tag: str = "") -> web.Response:
    return _response(content, "application/json", tag)


def _response(content: str, kind: str, tag: str) -> web.Response:
    headers = {**HEADERS, "ETag": tag} if tag else HEADERS
    return web.Response(text=content, content_type=kind, headers=headers)


def _refused(status: int, reason: str) -> web.Response:
    return web.Response(status=status, text=f"{reason}\n", headers=HEADERS)
