"""The throw-away authority: real clients trust it for the simulator's names, and for no others."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tpuctl.sim.network import certificate_authority
from tpuctl.sim.network.certificate_authority import BUNDLE_VARIABLES, CertificateAuthority

SERVED = ["storage.googleapis.com", "acme.storage.googleapis.com", "localhost", "127.0.0.1", "127.78.1.2"]
FOREIGN = [
    "example.com",
    "googleapis.com.example.com",
    "evilgoogleapis.com",
    "192.168.1.4",
    "accounts.google.com",
]
VERIFY = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver"]


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own certificates."""
    for name in BUNDLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tls"


@contextmanager
def server(context: ssl.SSLContext) -> Iterator[int]:
    """Answer every request on a port of loopback."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    with context.wrap_socket(connection, server_side=True) as secure:
                        secure.recv(4096)
                        secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def python_accepts(authority: CertificateAuthority, name: str) -> str:
    """Return '' if Python's TLS accepts a certificate of the authority for a name, else why not."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with (
        server(authority.server_context([name])) as port,
        closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as connection,
    ):
        try:
            context.wrap_socket(connection, server_hostname=name).close()
        except ssl.SSLError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("name", SERVED)
def test_a_served_name_is_trusted(folder: Path, name: str) -> None:
    assert python_accepts(CertificateAuthority(folder), name) == ""


@pytest.mark.parametrize("name", FOREIGN)
def test_another_name_is_refused_by_openssl(folder: Path, name: str) -> None:
    assert "permitted subtree violation" in python_accepts(CertificateAuthority(folder), name)


@pytest.mark.parametrize(("name", "trusted"), [("localhost", True), ("example.com", False)])
def test_requests_and_curl_agree(folder: Path, name: str, trusted: bool) -> None:
    authority = CertificateAuthority(folder)
    with server(authority.server_context([name])) as port:
        if shutil.which("curl"):
            to_us = ["--noproxy", "*", "--resolve", f"{name}:{port}:127.0.0.1", "--cacert", authority.ca_file]
            curl = subprocess.run(["curl", "-s", *to_us, f"https://{name}:{port}/"], timeout=60, check=False)
            assert curl.returncode == (0 if trusted else 60)
        with requests.Session() as session:
            session.trust_env = False
            session.mount("https://", _ToLoopback(name))
            url, roots = f"https://127.0.0.1:{port}/", str(authority.ca_file)
            if trusted:
                assert session.get(url, verify=roots, timeout=60).text == "ok"
            else:
                with pytest.raises(requests.exceptions.SSLError, match="permitted subtree violation"):
                    session.get(url, verify=roots, timeout=60)


class _ToLoopback(requests.adapters.HTTPAdapter):
    """Connects to 127.0.0.1 in place of the server that is expected there."""

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def init_poolmanager(self, *arguments: object, **options: object) -> None:
        super().init_poolmanager(
            *arguments, server_hostname=self._name, assert_hostname=self._name, **options
        )


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_an_authority_below_it_is_refused(folder: Path, tmp_path: Path) -> None:
    CertificateAuthority(folder)
    content = (folder / "authority.pem").read_bytes()
    root = x509.load_pem_x509_certificate(content)
    root_key = serialization.load_pem_private_key(content, password=None)
    middle_key, key = certificate_authority.new_key(), certificate_authority.new_key()
    middle = (
        certificate_authority._builder(x509.Name([]), middle_key, root.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    leaf = certificate_authority.server_certificate(root, middle_key, key, ["localhost"])
    for name, certificate in (("root", root), ("middle", middle), ("leaf", leaf)):
        (tmp_path / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    chain = ["-CAfile", tmp_path / "root", "-untrusted", tmp_path / "middle", tmp_path / "leaf"]
    assert subprocess.run([*VERIFY, *chain], capture_output=True, check=False).returncode != 0


def test_it_is_kept_for_a_year_and_then_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def current() -> x509.Certificate:
        CertificateAuthority(folder)
        return x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())

    first = current()
    assert first.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=365)
    assert current() == first
    monkeypatch.setattr(certificate_authority, "RENEWAL", timedelta(days=366))  # as it is a year later
    second = current()
    assert second != first
    monkeypatch.undo()
    assert current() == second
    monkeypatch.setattr(certificate_authority, "PERMITTED", certificate_authority.PERMITTED[1:])
    assert current() != second, "the names have changed"


def test_its_files_are_private_and_a_broken_one_is_replaced(folder: Path) -> None:
    umask = os.umask(0)
    try:
        CertificateAuthority(folder).server_context(["localhost"])
    finally:
        os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"tls": 0o700, "authority.pem": 0o600, "ca.pem": 0o600, "ca-bundle.pem": 0o600}
    (folder / "authority.pem").write_text("broken")
    assert python_accepts(CertificateAuthority(folder), "localhost") == ""


def test_the_users_own_roots_are_in_the_bundle_once_and_never_an_earlier_bundle(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.pem").write_text("# mine\n")
    (tmp_path / "link.pem").symlink_to("mine.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mine.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "link.pem"))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(folder / "ca-bundle.pem"))
    for _ in range(2):  # the second finds the bundle of the first
        authority = CertificateAuthority(folder)
        bundle = authority.ca_file.read_bytes()
        assert bundle.startswith(authority.own_file.read_bytes())
        assert bundle.count(b"# mine\n") == 1
        assert bundle.count(authority.own_file.read_bytes()) == 1
