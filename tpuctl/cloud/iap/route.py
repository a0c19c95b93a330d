"""Opens the TCP and TLS connection to the relay, through the user's proxy and with the user's authorities."""

from __future__ import annotations

import os
import socket
import ssl
import traceback
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, unquote, urlsplit

import requests.utils
import urllib3

from tpuctl.cloud.iap.endings import Interruption

PORTS = {"ws": 80, "wss": 443}


def connect(url: str, timeout: float, *, is_local: bool) -> socket.socket:
    """Return a connection to the host of a `ws:` or `wss:` URL; a local one goes through no proxy.

    The variables are those of our other clients: https_proxy, no_proxy, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE.
    Raises Interruption, which says what failed, and OSError.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    proxy = None if is_local else _proxy(host, port)
    stream = (
        _through(proxy, host, port, timeout) if proxy else socket.create_connection((host, port), timeout)
    )
    stream.settimeout(timeout)
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return authorities().wrap_socket(stream, server_hostname=host) if parts.scheme == "wss" else stream
    except BaseException:
        stream.close()
        raise


def authorities() -> ssl.SSLContext:
    """Return the context with the authorities that our other clients trust, or those of the user."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    try:
        if bundle:
            if os.path.isdir(bundle):
                return ssl.create_default_context(capath=bundle)
            return ssl.create_default_context(cafile=bundle)
        context = ssl.create_default_context()
        context.load_verify_locations(requests.utils.DEFAULT_CA_BUNDLE_PATH)
    except OSError as error:
        raise Interruption(f"the certificates of {bundle} cannot be read: {error.strerror}") from error
    return context


def _proxy(host: str, port: int) -> SplitResult | None:
    url = f"https://{host}:{port}"
    proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    if not proxy:
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http":
        raise Interruption(
            f"the proxy {parts.scheme}://{parts.hostname} cannot be used: only http:// proxies can"
        )
    return parts


def _through(proxy: SplitResult, host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection that an HTTP proxy has opened (CONNECT)."""
    connection = HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout)
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else None
    connection.set_tunnel(host, port, headers=urllib3.make_headers(proxy_basic_auth=login))
    try:
        connection.connect()
    except (OSError, HTTPException) as error:
        connection.close()
        traceback.clear_frames(error.__traceback__)  # of Python 3.11.2: its answer keeps the connection open
        place = f"{proxy.hostname}:{proxy.port or 80}"
        raise Interruption(f"the proxy {place} does not open a connection to {host}: {error}") from error
    return connection.sock
