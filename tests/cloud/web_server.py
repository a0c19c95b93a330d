"""A web server on this machine that serves files, and fails the way real servers do."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class WebServer:
    """The files of the server, and the failures of its next responses."""

    files: dict[str, bytes]
    url: str = ""
    statuses: list[int] = field(default_factory=list)
    """Status codes of the next responses."""
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the connections of the next responses are cut."""
    ranges: bool = True
    """Whether it honours Range headers."""
    most: int = 1 << 30
    """The largest size of a partial response, in bytes."""
    requests: list[str] = field(default_factory=list)
    """Path and range of each request."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Path -> where it has moved to."""
    headers: dict[str, str] = field(default_factory=dict)
    """Additional headers of each response."""
    refusal: bytes = b"sorry"
    """The body of responses with such a status."""


class QuietServer(ThreadingHTTPServer):
    """Prints no traceback when a client hangs up before the end of an answer, as tests of refusals do."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def refusing() -> Iterator[WebServer]:
    """Have a port that nobody listens on, and nobody else can get, while the block runs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield WebServer({}, f"http://127.0.0.1:{listener.getsockname()[1]}")


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[WebServer]:
    """Serve files by their paths while the block runs."""
    web = WebServer(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            byte_range = self.headers.get("Range", "")
            web.requests.append(f"{self.path} {byte_range}".strip())
            if self.path in web.redirects:
                self.answer(302, b"", {"Location": web.redirects[self.path]})
                return
            data = web.files.get(self.path)
            status = web.statuses.pop(0) if web.statuses else 200 if data is not None else 404
            if status != 200 or data is None:
                self.answer(status, web.refusal)
                return
            start = int(re.sub(r"\D", "", byte_range)) if byte_range and web.ranges else 0
            if start and start >= len(data):
                self.answer(416, b"")
            elif start:
                last = min(start + web.most, len(data)) - 1
                total = f"bytes {start}-{last}/{len(data)}"
                self.answer(206, data[start : start + web.most], {"Content-Range": total})
            else:
                self.answer(200, data)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def answer(self, status: int, data: bytes, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            headers = {"Content-Length": str(len(data)), **web.headers, **(more or {})}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if status in (200, 206) and web.cut_after:
                self.wfile.write(data[: web.cut_after.pop(0)])
                self.close_connection = True
                return
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Log nothing."""

    server = QuietServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
