"""Makes an authenticated SSH connection of an open stream, in a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import paramiko

from tpuctl.cloud.ssh.dialing import CONNECT_TIMEOUT, ByteStream
from tpuctl.cloud.ssh.explanations import SilentHost

KEEP_ALIVE = 15
"""Seconds without traffic after which a packet is sent: a stream whose other end is gone then fails."""
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
"""In order of preference: GCM needs no digest, which paramiko compares byte by byte in Python."""
HOST_KEY_TYPE = "ssh-ed25519"
"""The type of the keys that nodes publish; a host may have keys of other types too."""


def authenticate(
    stream: ByteStream, host_key: paramiko.PKey, user: str, key: paramiko.PKey
) -> paramiko.Transport:
    """Return the connection over a stream, which is closed when this fails.

    Raises paramiko's errors, and SilentHost when the host stops answering.
    """
    transport = _transport(stream)
    try:
        _begin(transport)
        _check(transport, host_key)
        _await(transport, "the login", lambda event: transport.auth_publickey(user, key, event))
        if not transport.is_authenticated():
            raise transport.get_exception() or paramiko.AuthenticationException("no login")
    except BaseException:
        transport.packetizer.complete_handshake()  # else its timer delays the end of the program
        transport.close()
        raise
    transport.set_keepalive(KEEP_ALIVE)
    return transport


def presented_key(stream: ByteStream) -> str:
    """Return the host key (base64) that answers over a stream, which is closed; raises as `authenticate`."""
    transport = _transport(stream)
    try:
        _begin(transport)
        return str(transport.get_remote_server_key().get_base64())
    finally:
        transport.packetizer.complete_handshake()
        transport.close()


def _transport(stream: ByteStream) -> paramiko.Transport:
    try:
        return paramiko.Transport(stream)
    except BaseException:
        stream.close()
        raise


def _begin(transport: paramiko.Transport) -> None:
    _prefer(transport)
    _await(transport, "the begin of the connection", transport.start_client)


def _prefer(transport: paramiko.Transport) -> None:
    options = transport.get_security_options()
    options.ciphers = CIPHERS
    options.key_types = (HOST_KEY_TYPE,)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = 2 * CONNECT_TIMEOUT
    transport.channel_timeout = CONNECT_TIMEOUT


def _await(transport: paramiko.Transport, step: str, begin: Callable[[threading.Event], object]) -> None:
    """Begin a step, and wait for the event of its end; raises the error that ended the connection."""
    event = threading.Event()
    begin(event)
    if not event.wait(CONNECT_TIMEOUT):
        raise SilentHost(step)
    if not transport.is_active() and not transport.is_authenticated():
        raise _reason(transport)


def _reason(transport: paramiko.Transport) -> BaseException:
    """Return the error that has ended a connection: EOFError or ConnectionError where the host did."""
    error: BaseException | None = transport.get_exception()
    cause = error.__context__ if error else EOFError()
    return cause if isinstance(cause, (EOFError, ConnectionError)) else error or EOFError()


def _check(transport: paramiko.Transport, host_key: paramiko.PKey) -> None:
    presented = transport.get_remote_server_key()
    if presented != host_key:
        raise paramiko.BadHostKeyException("the worker", presented, host_key)
