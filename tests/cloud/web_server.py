"""A web server on this machine that serves files, and fails in the ways that servers do."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class WebServer:
    """What is served, and what goes wrong with the next requests."""

    files: dict[str, bytes]
    url: str = ""
    statuses: list[int] = field(default_factory=list)
    """Answers to the next requests, whatever they ask for."""
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the connection is cut, of the next answers."""
    ranges: bool = True
    """Whether it gives a part where one is asked for."""
    most: int = 1 << 30
    """Bytes of the parts that it gives."""
    asked: list[str] = field(default_factory=list)
    """Path and range of each request."""
    headers: dict[str, str] = field(default_factory=dict)
    """Besides the usual ones."""


@contextmanager
def refusing() -> Iterator[WebServer]:
    """Have a port that nobody listens on, and nobody else can get, while the block runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield WebServer({}, f"http://127.0.0.1:{taken.getsockname()[1]}")


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[WebServer]:
    """Serve files by their paths while the block runs."""
    what = WebServer(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            what.asked.append(f"{self.path} {wanted}".strip())
            data = what.files.get(self.path)
            status = what.statuses.pop(0) if what.statuses else 200 if data is not None else 404
            if status != 200 or data is None:
                self.answer(status, b"sorry")
                return
            start = int(re.sub(r"\D", "", wanted)) if wanted and what.ranges else 0
            if start and start >= len(data):
                self.answer(416, b"")
            elif start:
                last = min(start + what.most, len(data)) - 1
                total = f"bytes {start}-{last}/{len(data)}"
                self.answer(206, data[start : start + what.most], {"Content-Range": total})
            else:
                self.answer(200, data)

        def answer(self, status: int, data: bytes, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            headers = {"Content-Length": str(len(data)), **what.headers, **(more or {})}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if status in (200, 206) and what.cut_after:
                self.wfile.write(data[: what.cut_after.pop(0)])
                self.close_connection = True
                return
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    what.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield what
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
