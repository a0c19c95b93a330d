"""Uploads over raw HTTP: the start of a session, one chunk, a connection that is cut."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import requests

from tests.sim.gcs.running_server import BUCKET


def start(http: requests.Session, url: str, name: str, **query: str) -> str:
    """Start a resumable session and return its URI."""
    answer = http.post(
        f"{url}/upload/storage/v1/b/{BUCKET}/o",
        params={"uploadType": "resumable", "name": name, **query},
        json={"metadata": {"k": "v"}},
        headers={"X-Upload-Content-Type": "text/x"},
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["Location"]


def put(http: requests.Session, uri: str, content_range: str, data: bytes = b"") -> requests.Response:
    """Send one chunk of a session."""
    return http.put(uri, data=data, headers={"Content-Range": content_range}, allow_redirects=False)


def fetch(http: requests.Session, url: str, name: str) -> bytes | None:
    """Return an object's bytes, or None."""
    answer = http.get(f"{url}/{BUCKET}/{name}")
    return answer.content if answer.status_code == 200 else None


def cut_short(uri: str, content_range: str, length: int, data: bytes) -> None:
    """Send a head with this Content-Length, then `data`, and cut the connection."""
    parts = urlsplit(uri)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        head = (
            f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Content-Range: {content_range}\r\nContent-Length: {length}\r\n\r\n"
        )
        connection.sendall(head.encode() + data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
