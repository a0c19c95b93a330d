"""A gRPC call as the simulator's server shows it, without a server."""

from __future__ import annotations


class Call:
    """One call: who is at the other end, and what it sends besides the request."""

    def __init__(self, peer: str, **metadata: str) -> None:
        self._peer, self._metadata = peer, tuple(metadata.items())

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...] | None:
        return self._metadata or None
