"""The key of the simulated service account: made once for a folder, good enough for every client."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt

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


EMAIL = "7-compute@developer.gserviceaccount.com"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Tokens:
    """A token server, and the key file that clients read."""

    def __init__(self, folder: Path) -> None:
        self._identity = Identity(folder / "access_token", Signer(folder / "identity.pem"))
        self._server = TokenServer(
            folder / "credentials.json", EMAIL, "acme", self._identity, guard_of(folder)
        )
        self._thread = LoopThread()
        self._thread.start(self._server.open(socket.create_server(("127.0.0.1", 0))))
        self.uri = self._server.uri
        self.key_file = json.loads(self._server.key_file.read_bytes())

    @property
    def access_token(self) -> str:
        return self._identity.access_token()

    def assertion(self, **claims: str) -> str:
        """Return claims, signed with the key of the file."""
        signer = crypt.RSASigner.from_string(self.key_file["private_key"])
        return str(jwt.encode(signer, claims).decode())

    def post(self, status: int = 200, **form: str) -> Any:
        with requests.Session() as http:
            http.trust_env = False
            answer = http.post(self.uri, data=form, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()

    def close(self) -> None:
        self._thread.finish(self._server.close())


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    served = Tokens(tmp_path)
    yield served
    served.close()


def test_the_key_file_is_that_of_a_service_account(tokens: Tokens) -> None:
    assert tokens.uri.startswith("http://127.0.0.1:")
    assert tokens.uri.endswith("/token")
    assert tokens.key_file == {
        "type": "service_account",
        "project_id": "acme",
        "private_key_id": "simulator",
        "private_key": tokens.key_file["private_key"],
        "client_email": EMAIL,
        "client_id": "7",
        "token_uri": tokens.uri,
        "universe_domain": "googleapis.com",
    }


def test_a_signed_assertion_is_exchanged_for_a_token(tokens: Tokens) -> None:
    """https://developers.google.com/identity/protocols/oauth2/service-account#httprest"""
    answer = tokens.post(grant_type=GRANT, assertion=tokens.assertion(iss=EMAIL))
    assert answer == {"access_token": tokens.access_token, "expires_in": 3600, "token_type": "Bearer"}


def test_an_assertion_for_an_audience_is_exchanged_for_an_identity(tokens: Tokens) -> None:
    assertion = tokens.assertion(iss=EMAIL, target_audience="https://run.example")
    answer = tokens.post(grant_type=GRANT, assertion=assertion)
    claims = jwt.decode(answer.pop("id_token"), verify=False)
    assert (claims["aud"], claims["email"], "google" in claims) == ("https://run.example", EMAIL, False)
    assert answer == {}


def test_what_cannot_be_exchanged_is_refused(tokens: Tokens) -> None:
    good = tokens.assertion(iss=EMAIL)
    signature = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    for assertion in ("", "x", good[:-8] + "AAAAAAAA", good.replace(".", ".A", 1)):
        assert tokens.post(400, grant_type=GRANT, assertion=assertion) == signature
    assert tokens.post(400, grant_type=GRANT) == signature
    assert tokens.post(400, grant_type=GRANT, assertion=tokens.assertion(iss="a@b.example")) == {
        "error": "invalid_grant",
        "error_description": "Invalid grant: account not found",
    }
    assert tokens.post(400, grant_type="password", assertion=good) == {
        "error": "unsupported_grant_type",
        "error_description": "Invalid grant_type: password",
    }
