"""The key of the simulated service account: made once for a folder, good enough for every client."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.event_loops.thread import LoopThread
from tests.sim.guards import guard_of
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.token_server import TokenServer


def key_of_a_start(folder: Path) -> str:
    """Start and stop the server, and return the key that its file has."""
    identity = Identity(folder / "access_token", Signer(folder / "identity.pem"))
    server = TokenServer(folder / "credentials.json", "a@b.example", "acme", identity, guard_of(folder))
    thread = LoopThread()
    listener = socket.create_server(("127.0.0.1", 0))
    thread.start(server.open(listener))
    thread.finish(server.close())
    listener.close()
    key: str = json.loads(server.key_file.read_bytes())["private_key"]
    return key


def bits(pem: str) -> int:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key.key_size


def test_a_key_has_as_many_bits_as_googles(tmp_path: Path) -> None:
    assert bits(key_of_a_start(tmp_path)) == 2048


def test_a_restart_makes_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = key_of_a_start(tmp_path)
    monkeypatch.delattr(rsa, "generate_private_key")
    assert key_of_a_start(tmp_path) == first


def test_a_short_key_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    key_of_a_start(tmp_path)
    file = tmp_path / "credentials.json"
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "private_key": short.decode()}))
    assert bits(key_of_a_start(tmp_path)) == 2048
