"""Issues certificates for programs that insist on https://*.googleapis.com."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tpuctl.sim.state import write_private

LIFETIME = timedelta(days=365)
RENEWAL = timedelta(days=30)
"""An authority that has less time left is replaced."""
BEFORE = timedelta(days=1)
"""Certificates are valid from so long ago: a clock may be set back a little."""
PERMITTED: list[x509.GeneralName] = [
    x509.DNSName("googleapis.com"),
    x509.DNSName("metadata.google.internal"),
    x509.DNSName("cloudproxy.app"),
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_network("127.0.0.0/8")),
    x509.IPAddress(ipaddress.ip_network("::1/128")),
]
"""A name stands for itself and all below it (RFC 5280, section 4.2.1.10)."""
AUTHORITY_NAME = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "tpuctl simulator")])
Key = ec.EllipticCurvePrivateKey
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


# Makes X.509 certificates: an authority for the simulator's names alone, and servers below it.


def new_key() -> Key:
    """Return a new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def authority_certificate(key: Key) -> x509.Certificate:
    """Return the certificate of an authority for the permitted names, without authorities below it."""
    return (
        _builder(AUTHORITY_NAME, key, datetime.now(UTC) + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.NameConstraints(PERMITTED, excluded_subtrees=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def server_certificate(
    authority: x509.Certificate, authority_key: Key, key: Key, names: Iterable[str]
) -> x509.Certificate:
    """Return the certificate of a server with these host names and addresses, wildcards allowed."""
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "tpuctl simulator, server")])
    return (
        _builder(subject, key, authority.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def is_current(authority: x509.Certificate) -> bool:
    """Return whether an authority's certificate is as one made now, with time left."""
    now = datetime.now(UTC)
    if not authority.not_valid_before_utc <= now < authority.not_valid_after_utc - RENEWAL:
        return False
    try:
        names = authority.extensions.get_extension_for_class(x509.NameConstraints)
        basic = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    lifetime = authority.not_valid_after_utc - authority.not_valid_before_utc
    constrained = names.critical and names.value.permitted_subtrees == PERMITTED
    return constrained and basic.value.path_length == 0 and lifetime <= LIFETIME + BEFORE


def pem(key: Key) -> bytes:
    """Return a private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(subject: x509.Name, key: Key, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(AUTHORITY_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - BEFORE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
