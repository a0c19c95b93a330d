"""Issues certificates for programs that insist on https://*.googleapis.com."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tpuctl.sim.network.certificates import (
    Key,
    authority_certificate,
    is_current,
    new_key,
    pem,
    server_certificate,
)
from tpuctl.sim.state.private_file import write_private

KEY_AND_CERTIFICATE = "authority.pem"
BUNDLE = "ca-bundle.pem"
ALONE = "ca.pem"
SERVER = "server.pem"

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables in which a user's environment may name its own root certificates."""


class CertificateAuthority:
    """A certificate authority kept in `folder`, readable by its owner alone.

    The same after a restart, so that running programs go on trusting it; made anew when it is about to
    expire, or was made for other names.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._key, self._certificate = _load(folder / KEY_AND_CERTIFICATE) or _create(
            folder / KEY_AND_CERTIFICATE
        )
        self.ca_file = folder / BUNDLE
        """Our certificate and the system's roots: for programs that use the simulator and real servers."""
        own = self._certificate.public_bytes(Encoding.PEM)
        self.own_file = folder / ALONE
        """Our certificate alone: for programs that are to meet no real server."""
        write_private(self.own_file, own)
        write_private(self.ca_file, b"\n".join([own, *_system_roots(self.ca_file)]))

    def server_context(self, hostnames: Iterable[str]) -> ssl.SSLContext:
        """Return a server's TLS context with a certificate for the host names, wildcards allowed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        key = new_key()
        certificate = server_certificate(self._certificate, self._key, key, hostnames)
        file = self._folder / SERVER
        try:  # OpenSSL reads files alone
            write_private(file, pem(key) + certificate.public_bytes(Encoding.PEM))
            context.load_cert_chain(file)
        finally:
            file.unlink(missing_ok=True)
        return context


def _load(path: Path) -> tuple[Key, x509.Certificate] | None:
    """Read an authority; None for one that is not there or not current."""
    try:
        content = path.read_bytes()
        key = load_pem_private_key(content, password=None)
        certificate = x509.load_pem_x509_certificate(content)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, EllipticCurvePrivateKey) or not is_current(certificate):
        return None
    return key, certificate


def _create(path: Path) -> tuple[Key, x509.Certificate]:
    key = new_key()
    certificate = authority_certificate(key)
    write_private(path, pem(key) + certificate.public_bytes(Encoding.PEM))
    return key, certificate


def _system_roots(own: Path) -> Iterator[bytes]:
    read: set[Path] = {own.resolve()}
    for candidate in _root_files():
        if candidate.is_file() and candidate.resolve() not in read:
            read.add(candidate.resolve())
            yield candidate.read_bytes()


def _root_files() -> Iterator[Path]:
    for variable in BUNDLE_VARIABLES:
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    system = ssl.get_default_verify_paths().openssl_cafile
    if Path(system).is_file():
        yield Path(system)
    elif (certifi := find_spec("certifi")) is not None and certifi.origin:
        yield Path(certifi.origin).with_name("cacert.pem")
