"""A small HTTP server in front of the simulator's Cloud Storage that drops, cuts and refuses on demand."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.cloud.web_server import QuietServer

TOKEN_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"


class FaultyWire:
    """Forwards to `upstream`; takes one entry of `plan` for each request to Cloud Storage.

    An entry is an HTTP status to answer with instead, or `cut` (drop the request), `lose` (do it, drop the
    answer) or `short` (do it, send half of the answer); "" lets a request pass, as does an empty plan.
    `token_plan` holds statuses for the metadata server's part.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.plan: list[int | str] = []
        self.token_plan: list[int] = []
        self.requests: list[str] = []
        self.tokens = 0
        self.expires_in = 3600
        self._server = QuietServer(("127.0.0.1", 0), _Handler)
        self._server.wire = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        wire: FaultyWire = self.server.wire  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == TOKEN_PATH:
            self._token(wire)
            return
        wire.requests.append(f"{self.command} {self.path} {self.headers['Authorization']}")
        fault = wire.plan.pop(0) if wire.plan else ""
        if fault == "cut":
            self.close_connection = True
        elif isinstance(fault, int):
            self._answer(fault, b"the wire says no")
        else:
            self._forward(wire, body, fault)

    do_POST = do_DELETE = do_GET

    def _forward(self, wire: FaultyWire, body: bytes, fault: str) -> None:
        upstream = http.client.HTTPConnection(wire.upstream.hostname or "", wire.upstream.port)
        try:
            headers = {"Content-Type": self.headers.get("Content-Type", "text/plain")}
            if "Range" in self.headers:
                headers["Range"] = self.headers["Range"]
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            data, generation = answer.read(), answer.headers.get("x-goog-generation", "")
        finally:
            upstream.close()
        if fault == "lose":
            self.close_connection = True
        elif fault == "short":
            self._answer(answer.status, data[: len(data) // 2], len(data), generation)
        else:
            self._answer(answer.status, data, generation=generation)

    def _token(self, wire: FaultyWire) -> None:
        assert self.headers["Metadata-Flavor"] == "Google"
        if wire.token_plan:
            self._answer(wire.token_plan.pop(0), b"")
            return
        wire.tokens += 1
        answer = {
            "access_token": f"token-{wire.tokens}",
            "expires_in": wire.expires_in,
            "token_type": "Bearer",
        }
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, data: bytes, length: int | None = None, generation: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        if generation:
            self.send_header("x-goog-generation", generation)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""
