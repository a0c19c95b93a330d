"""Attacks as another user of the machine: each is sent by a child process that has given up root.

It loads all that the attacks need before: that user may be unable to read this checkout and its packages.
An attack that was refused has a result. One that fails otherwise fails the test, with its traceback.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.paths import ROOT

NOBODY = 65534
TIMEOUT = 60.0

CLOSED = "closed without an answer"
DENIED = "permission denied"
SENT = "sent"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def attack(*steps: tuple[str, ...], folder: Path = ROOT) -> list[str]:
    """Carry out steps, each the name of a function below and its arguments, as `nobody`: their results.

    `folder` is where that user is; the folders above it need not be open to others.
    """
    command = [sys.executable, "-m", __name__, str(folder), json.dumps(steps)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    results: list[str] = json.loads(child.stdout)
    return results


def http(address: str, request: str) -> str:
    """Send a request as it is and return the first line of the answer."""
    with _connection(address) as connection:
        connection.sendall(request.encode())
        return _first_line(connection)


def banner(address: str) -> str:
    """Return what a server says first."""
    with _connection(address) as connection:
        return _first_line(connection)


def tls(address: str, request: str) -> str:
    """Send a request under TLS, to a server with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _connection(address) as connection:
        try:
            with context.wrap_socket(connection, server_hostname="tpu.googleapis.com") as secure:
                secure.sendall(request.encode())
                return _first_line(secure)
        except (ssl.SSLError, ConnectionError):
            return CLOSED


def send_and_leave(address: str, request: str, times: str) -> str:
    """Send a request and close the connection at once, by FIN and by RST in turns."""
    for turn in range(int(times)):
        with _connection(address) as connection:
            if turn % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(request.encode())
    return SENT


def by_ipv6_socket(address: str, request: str) -> str:
    """Send a request through a socket of IPv6 to the address in IPv4."""
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET6) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect((f"::ffff:{host}", int(port)))
        connection.sendall(request.encode())
        return _first_line(connection)


def create_node(address: str, name: str) -> str:
    """Create a node over gRPC and return the status."""
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        try:
            client.create_node(parent=name.rpartition("/nodes/")[0], node_id="evil", node=node)
        except GoogleAPICallError as error:
            return type(error).__name__
    return "created"


def read(path: str) -> str:
    """Read a file or list a folder."""
    try:
        if os.path.isdir(path):
            return str(os.listdir(path))
        with open(path, "rb") as stream:
            return repr(stream.read())
    except PermissionError:
        return DENIED


STEPS: dict[str, Callable[..., str]] = {
    step.__name__: step for step in (http, banner, tls, send_and_leave, by_ipv6_socket, create_node, read)
}


def _connection(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def _first_line(connection: socket.socket) -> str:
    received = b""
    try:
        while b"\n" not in received and (data := connection.recv(4096)):
            received += data
    except ConnectionError:
        pass
    return received.partition(b"\r\n")[0].decode("latin-1") or CLOSED


def _main(folder: str, steps: list[list[str]]) -> list[str]:
    _rehearse(steps)
    os.chdir(folder)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    return [STEPS[name](*arguments) for name, *arguments in steps]


def _rehearse(steps: list[list[str]]) -> None:
    """Have each kind of step import what it imports when it first runs, at a server that only hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = "{}:{}".format(*listener.getsockname())

    def hang_up() -> None:
        while True:
            listener.accept()[0].close()

    threading.Thread(target=hang_up, daemon=True).start()
    for name, _, *arguments in steps:
        STEPS[name](os.devnull if name == "read" else address, *arguments)


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], json.loads(sys.argv[2]))))
