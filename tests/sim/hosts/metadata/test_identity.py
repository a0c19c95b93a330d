"""The tokens of a machine's service account: as Google's, signed by a key of the simulator."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from google.auth import jwt

from tpuctl.sim.hosts.metadata.identity import Identity, Signer

EMAIL = "123456-compute@developer.gserviceaccount.com"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "identity.pem")


def test_an_access_token_is_made_once_and_is_private(tmp_path: Path, signer: Signer) -> None:
    file = tmp_path / "access_token"
    token = Identity(file, signer).access_token()
    assert token.startswith("ya29.")
    assert len(token) == len("ya29.") + 43, "32 bytes in base64"
    assert Identity(file, signer).access_token() == token == file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Identity(tmp_path / "other", signer).access_token() != token


def test_an_identity_token_has_googles_claims(tmp_path: Path, signer: Signer) -> None:
    before = int(time.time())
    token = Identity(tmp_path / "t", signer).token("https://a.example", EMAIL, None)
    claims = dict(jwt.decode(token, verify=False))
    issued, subject = claims["iat"], claims["sub"]
    assert before <= issued <= time.time()
    assert subject.isdecimal()
    assert claims == {
        "aud": "https://a.example",
        "azp": subject,
        "email": EMAIL,
        "email_verified": True,
        "exp": issued + 3600,
        "iat": issued,
        "iss": "https://accounts.google.com",
        "sub": subject,
    }
    assert jwt.decode_header(token) == {"alg": "RS256", "kid": "simulator", "typ": "JWT"}


def test_a_full_token_has_the_facts_of_the_instance(tmp_path: Path, signer: Signer) -> None:
    token = Identity(tmp_path / "t", signer).token("a", EMAIL, {"zone": "z"})
    assert jwt.decode(token, verify=False)["google"] == {"compute_engine": {"zone": "z"}}


def test_a_key_is_made_once(tmp_path: Path, signer: Signer) -> None:
    public = signer.public_key()
    assert Signer(tmp_path / "identity.pem").public_key() == public
    assert stat.S_IMODE((tmp_path / "identity.pem").stat().st_mode) == 0o600
    assert public.startswith(b"-----BEGIN PUBLIC KEY-----")
