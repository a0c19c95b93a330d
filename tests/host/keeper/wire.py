"""The services that a keeper talks to, as one server in this process, which notes each request."""

from __future__ import annotations

import email.utils
import errno
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.cloud.web_server import QuietServer
from tpuctl.host import gcs, timing, wire
from tpuctl.host.keeper import keeper

NODE = "projects/p/locations/z/nodes/n1"
ADDRESS = "10.0.0.2"
CREATED = 1_767_268_800.0  # 2026-01-01T12:00:00Z
HANG = 0
PATIENCE = {
    "metadata": keeper.METADATA_TIMEOUT,
    "api": keeper.API_TIMEOUT,
    "guests": keeper.API_TIMEOUT,
    "bucket": wire.TIMEOUT,
}
"""Seconds that a client waits for an answer that does not come."""
PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


class Services:
    """The metadata server, the Cloud TPU API and the bucket of a VM of the node n1."""

    def __init__(self) -> None:
        self.time = CREATED
        """By the metadata server."""
        self.api_time: float | None = None
        """By the API; that of the metadata server unless it is set."""
        self.attributes: dict[str, str] = {"agent-worker-number": "0", "instance-id": "n1"}
        self.values = {
            "instance/zone": "projects/1/zones/z", "project/project-id": "p",
            "instance/network-interfaces/0/ip": ADDRESS,
        }  # fmt: skip
        self.node: dict[str, Any] = {
            "id": "77", "state": "READY", "createTime": "2026-01-01T12:00:00.5Z",
            "networkEndpoints": [{"ipAddress": ADDRESS}],
        }  # fmt: skip
        self.guests: list[dict[str, Any]] = []
        self.errors: dict[str, list[tuple[int, str]]] = {}
        """Method and path -> status and message of the next answers to that."""
        self.waits: list[dict[str, str]] = []
        """The queries by which the attributes were asked for."""
        self.notes: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str, Any, str]] = []
        """Method, path, body and authorization of each request to the API."""
        self.deleted: list[float] = []
        """When a deletion was accepted."""
        self.objects: dict[str, dict[str, Any]] = {}
        self.token = "token"
        self.sleep_ends: Callable[[], object] = lambda: None
        """Called when the keeper has slept."""
        self.broken: dict[str, int] = {}
        """metadata, api, guests or bucket -> status of each of its answers; HANG for none."""
        self.ahead = 0.0
        """By how much the metadata server's clock is wrong."""

    def answer(self, method: str, target: str, body: bytes, headers: Any) -> tuple[int, object]:
        """Return status and content for one request."""
        url = urlsplit(target)
        service = _service(url.path)
        status = self.broken.get(service, 200)
        if status == HANG:
            self.time += PATIENCE[service] + float(dict(parse_qsl(url.query)).get("timeout_sec", 0))
            raise TimeoutError
        if status != 200:
            return status, {"error": {"message": f"broken: {status}"}}
        planned = self.errors.get(f"{method} {target}", [])
        if planned:
            status, message = planned.pop(0)
        else:
            status, message = 200, ""
        if url.path.startswith("/computeMetadata/v1/"):
            assert headers["Metadata-Flavor"] == "Google"
            path = url.path.removeprefix("/computeMetadata/v1/")
            return (
                self._metadata(method, path, dict(parse_qsl(url.query)), body)
                if status == 200
                else (status, "")
            )
        if url.path.startswith("/upload/storage/v1/b/"):
            assert headers["Content-Type"] == "application/json"
            query = dict(parse_qsl(url.query))
            bucket = url.path.split("/")[5]
            self.objects[f"{bucket}/{query['name']}"] = {"query": query, "content": json.loads(body)}
            return 200, {"generation": "1"}
        call = (
            method,
            target.removeprefix("/v2/"),
            json.loads(body) if body else None,
            headers["Authorization"],
        )
        self.calls.append(call)
        assert headers["Content-Type"] == "application/json"
        if status != 200:
            return status, {"error": {"message": message}} if message else "no JSON"
        if method == "GET":
            return 200, self.node
        if method == "DELETE":
            self.deleted.append(self.time)
        return 200, {"guestAttributes": self.guests} if target.endswith(":getGuestAttributes") else {}

    def _metadata(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, object]:
        if path == "instance/attributes/":
            self.waits.append(query)
            self.time += float(query.get("timeout_sec", 0))
            return 200, self.attributes
        if path == "instance/service-accounts/default/token":
            return 200, {"access_token": self.token, "expires_in": 3600}
        if method == "PUT" and path == "instance/guest-attributes/tpuctl/keeper":
            self.notes.append(json.loads(body))
            return 200, ""
        return 200, self.values[path]

    def fail(self, method: str, path: str, status: int, message: str = "", times: int = 1) -> None:
        """Have the next requests to the API answered by an error."""
        self.errors.setdefault(f"{method} /v2/{path}", []).extend([(status, message)] * times)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        self.sleep_ends()

    def made(self, method: str) -> list[str]:
        """Return the paths of the API's requests by a method."""
        return [path for called, path, _, _ in self.calls if called == method]


class FullDisk(io.TextIOBase):
    """A log file that takes nothing more."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _service(path: str) -> str:
    if path.startswith(("/upload/", "/storage/")):
        return "bucket"
    if path.startswith("/computeMetadata/"):
        return "metadata"
    return "guests" if path.endswith(":getGuestAttributes") else "api"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        services: Services = self.server.services  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, content = services.answer(self.command, self.path, body, self.headers)
        except TimeoutError:  # the time in which the client gives up is over already
            self.close_connection = True
            return
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        if self.path.startswith("/v2/"):
            date = services.time if services.api_time is None else services.api_time
        else:
            date = services.time + services.ahead
        self.send_response_only(status)
        self.send_header("Date", email.utils.formatdate(date, usegmt=True))
        self.send_header("ETag", f"etag-{len(services.waits)}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Have the keeper's program in this process talk to such services while the block runs."""
    services = Services()
    server = QuietServer(("127.0.0.1", 0), _Handler)
    server.services = services  # type: ignore[attr-defined]
    address = f"127.0.0.1:{server.server_address[1]}"
    for name in (*PROXIES, gcs.EMULATOR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(timing, "sleep", services.sleep)
    monkeypatch.setattr(timing, "REQUEST_PAUSES", (0.0, 0.0))
    monkeypatch.setenv("GCE_METADATA_HOST", address)
    monkeypatch.setattr(keeper, "URL", f"http://{address}")
    monkeypatch.setattr(gcs, "HOST", f"http://{address}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield services
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
