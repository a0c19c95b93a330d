"""Asks the relay for a tunnel, or for the rest of one that was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from tpuctl import __version__
from tpuctl.cloud.iap.frames import Refusal
from tpuctl.cloud.iap.websocket import WebSocket
from tpuctl.cloud.request_log import logged

URL = "wss://tunnel.cloudproxy.app/v4"
"""Google's relay: gcloud's `iap_tunnel_websocket_utils.py`."""
UNAUTHENTICATED = 401


@dataclass(frozen=True)
class Instance:
    """A port of a virtual machine: a worker of a node."""

    project: str
    zone: str
    name: str
    """Its hostname, as its guest attributes say."""
    interface: str = "nic0"
    port: int = 22


@dataclass(frozen=True)
class Patience:
    """Seconds after which something is no longer waited for."""

    connect: float = 20.0
    """For a connection to the relay, until it has reached the host."""
    ping: float = 20.0
    """Of silence, before the relay is asked whether it is there."""
    silence: float = 45.0
    """Of silence, before the connection counts as lost."""
    resume: float = 120.0
    """Until a lost connection is resumed."""
    pause: float = 1.0
    """Between the first two attempts to resume it; it grows."""
    steady: float = 20.0
    """For which a connection lasts, or it carries bytes, before its loss counts as a new one."""
    linger: float = 10.0
    """Of silence after our goodbye: the relay answers it when it has read what we sent before."""
    acknowledge: float = 2.0
    """Until the relay is told what has arrived, however little."""


@dataclass(frozen=True)
class Relay:
    """Where the relay is, and who asks."""

    token: Callable[[bool], str]
    """Returns an access token, '' for none; a new one with True: the relay has refused the last."""
    url: str = URL
    is_local: bool = False
    """It is on loopback: not for the user's proxy."""
    patience: Patience = Patience()

    def begin(self, instance: Instance) -> WebSocket:
        """Open a connection for a new tunnel; raises Ending."""
        query = {
            "project": instance.project,
            "port": instance.port,
            "newWebsocket": "True",
            "zone": instance.zone,
            "instance": instance.name,
            "interface": instance.interface,
        }
        return self._open("connect", query)

    def resume(self, instance: Instance, session: bytes, received: int, *, renew: bool) -> WebSocket:
        """Open a connection for the rest of a tunnel, with a new token if `renew`; raises Ending."""
        query = {
            "sid": session,
            "ack": received,
            "newWebsocket": "True",
            "zone": instance.zone,
        }
        return self._open("reconnect", query, renew=renew)

    def _open(self, path: str, query: dict[str, object], *, renew: bool = False) -> WebSocket:
        url = f"{self.url.rstrip('/')}/{path}?{urlencode(query)}"
        try:
            return self._connect(url, renew=renew)
        except Refusal as refusal:
            if renew or refusal.code != UNAUTHENTICATED:
                raise
        return self._connect(url, renew=True)

    def _connect(self, url: str, *, renew: bool) -> WebSocket:
        headers, seconds = self._headers(renew=renew), self.patience.connect
        return logged("GET", url, lambda: WebSocket(url, headers, seconds, is_local=self.is_local))

    def _headers(self, *, renew: bool) -> dict[str, str]:
        token = self.token(renew)
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        return {"User-Agent": f"tpuctl/{__version__}", **authorization}
