"""What benchmarks/gcs does to a server: over raw sockets, where the client costs least, and in Python."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from benchmarks.gcs.servers import BUCKET, Server

UPLOAD = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name="
DOWNLOAD = f"/download/storage/v1/b/{BUCKET}/o/"
BLOCK = 1 << 20


def upload(server: Server, source: Path, name: str = "big") -> float:
    """Upload a file by sendfile; return MB/s."""
    size = source.stat().st_size
    head = f"POST {UPLOAD}{name} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
    with source.open("rb") as file, _connect(server) as connection:
        began = time.perf_counter()
        connection.sendall(head)
        connection.sendfile(file)
        _expect_success(connection.recv(4096))
        return size / (time.perf_counter() - began) / 1e6


def download(server: Server, size: int, name: str = "big") -> float:
    """Download an object into a buffer; return MB/s."""
    buffer = bytearray(BLOCK)
    with _connect(server) as connection:
        began = time.perf_counter()
        connection.sendall(f"GET {DOWNLOAD}{name}?alt=media HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        count = connection.recv_into(buffer)
        _expect_success(bytes(buffer[:64]))
        received = count - buffer.find(b"\r\n\r\n", 0, count) - 4
        while received < size and (count := connection.recv_into(buffer)):
            received += count
        if received < size:
            raise SystemExit(f"{server.name} sent {received} of {size} bytes")
        return size / (time.perf_counter() - began) / 1e6


def python_client(server: Server, source: Path, target: Path) -> tuple[float, float]:
    """Upload and download a file with google-cloud-storage; return MB/s each way."""
    size = source.stat().st_size
    options = {"api_endpoint": f"http://127.0.0.1:{server.port}"}
    with closing(storage.Client("bench", AnonymousCredentials(), client_options=options)) as client:
        blob = client.bucket(BUCKET).blob("python")
        began = time.perf_counter()
        blob.upload_from_filename(str(source), timeout=600, checksum=None)
        up = time.perf_counter() - began
        began = time.perf_counter()
        blob.download_to_filename(str(target), timeout=600, checksum=None)
        return size / up / 1e6, size / (time.perf_counter() - began) / 1e6


def small_puts(server: Server, puts: int, connections: int = 16) -> tuple[float, int]:
    """Upload objects of 1 kB over 16 connections at once; return how many a second, and how many failed."""
    stored: list[int] = []
    began = time.perf_counter()
    threads = [
        threading.Thread(target=lambda number=number: stored.append(_puts(server, number, puts)))
        for number in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(stored) / (time.perf_counter() - began), puts * connections - sum(stored)


def _puts(server: Server, number: int, puts: int) -> int:
    """Upload small objects over one connection; return how many were stored."""
    stored = 0
    with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        for count in range(puts):
            try:
                connection.request("POST", f"{UPLOAD}small-{number}-{count}", body=b"x" * 1000)
                answer = connection.getresponse()
                answer.read()
                stored += answer.status == 200
            except (OSError, http.client.HTTPException):
                connection.close()  # the next request opens it again
    return stored


def list_pages(server: Server, bucket: str, delimiter: str) -> tuple[int, list[float]]:
    """List a bucket in pages of 1,000; return how many entries there were, and each page's seconds."""
    entries, seconds, token = 0, [], ""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        while True:
            began = time.perf_counter()
            query = f"maxResults=1000&delimiter={delimiter}&pageToken={token}"
            connection.request("GET", f"/storage/v1/b/{bucket}/o?{query}")
            body = connection.getresponse().read()
            seconds.append(time.perf_counter() - began)
            page = json.loads(body)
            entries += len(page.get("items", [])) + len(page.get("prefixes", []))
            token = page.get("nextPageToken", "")
            if not token:
                return entries, seconds


def gets_under_load(server: Server, source: Path, parts: int) -> list[float]:
    """Read a small object again and again while `big` is composed and uploaded; return each GET's seconds."""
    loaded = threading.Event()

    def load() -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)) as connection:
            body = json.dumps({"sourceObjects": [{"name": "big"}] * parts})
            path = f"/storage/v1/b/{BUCKET}/o/whole/compose"
            connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
            _expect_success(f"HTTP/1.1 {connection.getresponse().status}".encode())
        for number in range(parts):
            upload(server, source, f"big-{number}")
        loaded.set()

    seconds = []
    thread = threading.Thread(target=load)
    with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("POST", f"{UPLOAD}little", body=b"x" * 1000)
        connection.getresponse().read()
        thread.start()
        while not loaded.is_set() and thread.is_alive():
            began = time.perf_counter()
            connection.request("GET", f"{DOWNLOAD}little?alt=media")
            connection.getresponse().read()
            seconds.append(time.perf_counter() - began)
            time.sleep(0.005)
    thread.join()
    return seconds


def random_file(path: Path, size: int) -> Path:
    """Fill a file with bytes that do not compress."""
    with path.open("wb") as file:
        for _ in range(size // (16 * BLOCK)):
            file.write(os.urandom(16 * BLOCK))
    return path


def _connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=600)


def _expect_success(answer: bytes) -> None:
    if answer.split(b" ", 2)[1:2] not in ([b"200"], [b"201"]):
        raise SystemExit(f"an unexpected answer: {answer[:200]!r}")
