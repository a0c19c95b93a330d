"""Issues certificates for programs that insist on https://*.googleapis.com."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import trustme

from tpuctl.sim.state.private_file import write_private

KEY_AND_CERTIFICATE = "authority.pem"
BUNDLE = "ca-bundle.pem"

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables in which a user's environment may name its own root certificates."""

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


class CertificateAuthority:
    """A certificate authority kept in `folder`: the same after a restart, readable by its owner alone."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = _load_or_create(folder / KEY_AND_CERTIFICATE)
        self.ca_file = folder / BUNDLE
        """Our certificate and the system's roots: for programs that use the simulator and real servers."""
        write_private(self.ca_file, b"\n".join([self._ca.cert_pem.bytes(), *_system_roots(self.ca_file)]))

    def server_context(self, hostnames: Iterable[str]) -> ssl.SSLContext:
        """Return a server's TLS context with a certificate for the host names, wildcards allowed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        self._ca.issue_cert(*hostnames).configure_cert(context)
        return context


def _load_or_create(path: Path) -> trustme.CA:
    if path.exists():
        key, _, certificate = path.read_bytes().partition(_CERTIFICATE)
        return trustme.CA.from_pem(cert_bytes=_CERTIFICATE + certificate, private_key_bytes=key)
    authority = trustme.CA(organization_name="tpuctl simulator")
    write_private(path, authority.private_key_pem.bytes() + authority.cert_pem.bytes())
    return authority


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
