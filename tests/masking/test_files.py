"""Files with credentials are recognised by name and content; certificates and templates are none."""

from __future__ import annotations

import pytest

from tests.masking.samples import private_key
from tpuctl.masking import credential_kind

KEY = private_key().encode()
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
CREDENTIALS = [
    (".env", b"A=1"), ("sub/.env.local", b"A=1"), ("prod.env", b"A=1"), ("id_rsa", b""),
    ("keys/id_ed25519", b""),
    ("tls.pem", CERTIFICATE + KEY), ("server.key", KEY), ("deploy", KEY), ("a.p12", b"\0"), (".netrc", b""),
    ("key.json", b'{\n "type": "service_account"}'), ("x.json", b'{"type":"authorized_user"}'),
    (".ssh/config", b""),
    ("KEY.PEM", KEY), ("tls.pem.bak", KEY), ("id_ed25519.old", KEY),
    ("SA.JSON", b'{"type": "service_account"}'),
    ("sa.json.orig", b'{"type": "service_account"}'), ("prod.env.bak", b"A=1"), (".s3cfg", b""),
    ("home/.aws/credentials", b""), ("kaggle.json", b"{}"), ("terraform.tfstate", b"{}"), ("ID_RSA", b""),
]  # fmt: skip
OTHERS = [
    ("ca.pem", CERTIFICATE), ("id_rsa.pub", b"ssh-rsa AAAA"), (".env.example", b"A="), ("job.py", KEY),
    ("notes.md", KEY),
    ("config.json", b'{"type": "service"}'), ("environment.yml", b""), ("key.json", b"{}"), ("envs.py", b""),
    ("tokens.txt", b"[PAD]"), ("ssh/x.py", b""), ("credentials.py", b""), ("keyboard.key", b"\0\1"),
]  # fmt: skip


NAMED = [
    ".env.production", "id_dsa", "id_ecdsa", "putty.ppk", "a.pfx", "a.jks", "a.keystore", "a.kdbx", "_netrc",
    ".pgpass", ".pypirc", ".git-credentials", ".htpasswd", ".dockercfg", ".boto", "terraform.tfstate.backup",
    "application_default_credentials.json", ".databrickscfg", "rclone.conf", "prod.env.old", ".gnupg/x",
    ".azure/x", ".kube/config", ".docker/config.json", "gcloud/x",
]  # fmt: skip
"""Names of which each alone says that the file holds credentials."""
TEMPLATES = [".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "a/.ENV.SAMPLE"]
KEY_FILES = [
    "a.pem", "a.key", "a.p8", "a.crt", "a.cer", "a.json", "a.txt", "a",
    "a.key.bak", "a.key.backup", "a.key.old", "a.key.orig", "a.key.save",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_files_are_recognised_by_their_names_alone(name: str) -> None:
    assert credential_kind(name, b"") == "credentials"


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_settings_hold_no_credentials(name: str) -> None:
    assert credential_kind(name, b"A=") == ""


@pytest.mark.parametrize("name", KEY_FILES)
def test_a_key_is_recognised_by_what_the_file_holds(name: str) -> None:
    assert credential_kind(name, KEY) == "a private key"
    assert credential_kind(name, CERTIFICATE) == ""


@pytest.mark.parametrize(("name", "content"), CREDENTIALS, ids=lambda value: str(value)[:30])
def test_credentials_are_recognised(name: str, content: bytes) -> None:
    assert credential_kind(name, content)


@pytest.mark.parametrize(("name", "content"), OTHERS, ids=lambda value: str(value)[:30])
def test_other_files_are_not(name: str, content: bytes) -> None:
    assert credential_kind(name, content) == ""
