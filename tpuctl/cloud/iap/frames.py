"""Encodes and decodes the frames of the relay's protocol; pure.

All numbers are big-endian. The facts are those of gcloud's `iap_tunnel_websocket_utils.py` and of Google's
IAP Desktop (`SshRelayFormat`, which alone has the long close).

- Explains how tunnels end: the relay's codes, and the answers to a request for one.

  Codes: `SshRelayCloseCode` of Google's IAP Desktop, and gcloud's `iap_tunnel_websocket.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tpuctl.errors import ConfigError, HostError, TpuctlError

if TYPE_CHECKING:
    from tpuctl.cloud.iap.relay import Instance


ROLE = "roles/iap.tunnelResourceAccessor"
API = "iap.googleapis.com"
RANGE = "35.235.240.0/20"
"""From where the relay reaches hosts: https://cloud.google.com/iap/docs/using-tcp-forwarding"""

NORMAL = (1000, 4009, 4010)
"""The host has closed the connection."""
REAUTHENTICATE = 4004
RESUMABLE = (1001, 1006, 1011, 1012, 1013, 4002, REAUTHENTICATE)
"""The connection to the relay ended, and not the tunnel; 4002: the relay has not noticed yet."""
MOST_REASON = 300
"""Characters of a reason that are shown."""


class Ending(Exception):
    """The tunnel has ended; `code` is a WebSocket's close code, 0 where there was none."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason[:MOST_REASON]
        self.code = code

    @property
    def is_normal(self) -> bool:
        """Whether the host has closed the connection."""
        return self.code in NORMAL


class Interruption(Ending):
    """The connection to the relay has ended; the tunnel can be resumed."""


class Refusal(Ending):
    """The relay answered the request for a tunnel with an HTTP status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(body or f"HTTP status {status}", status)


def close(code: int, reason: str) -> Ending:
    """Return the ending for a WebSocket's close."""
    kind = Interruption if code in RESUMABLE else Ending
    return kind(reason, code)


@dataclass(frozen=True)
class Row:
    """What users read; fields: reason, code, instance, zone, project."""

    error: type[TpuctlError]
    message: str
    hint: str
    texts: tuple[str, ...] = ("",)
    """It fits if the reason has one of these, in lower case."""


SEE_STATE = "'tpuctl ls' shows the node's state."
NOT_AUTHORIZED = Row(
    ConfigError,
    "you may not use IAP's tunnels to it: {reason}",
    f"Ask an owner of project {{project}} for {ROLE}: gcloud projects add-iam-policy-binding {{project}} "
    f"--member=user:YOU --role={ROLE}. Inside of its network, pass --no-iap.",
)
API_OFF = Row(
    ConfigError,
    "the Cloud Identity-Aware Proxy API is off in project {project}",
    f"Run 'gcloud services enable {API} --project {{project}}', and again in some minutes.",
    ("service_disabled", "has not been used", "is disabled"),
)
NOT_FOUND = Row(
    HostError, "IAP finds no instance {instance} in {zone}: {reason}", f"It may still start: {SEE_STATE}"
)
LOST = Row(
    HostError,
    "its IAP tunnel was lost and cannot be resumed: {reason}",
    "Run the command again; what runs on the host goes on.",
)
CLOSED = Row(HostError, "IAP's relay ended the tunnel: {reason}", f"The host may be down: {SEE_STATE}")
NO_CONNECTION = Row(
    HostError, "no connection through IAP: {reason}", "Check your network, and run the command again."
)
NO_INSTANCE = (4047, 4051)
CLOSES: Mapping[int, Row] = {
    4001: LOST,
    4002: LOST,
    4003: Row(
        HostError,
        "IAP cannot reach its port 22: {reason}",
        f"It may still boot, or no firewall rule lets {RANGE} reach it: 'tpuctl doctor' checks that.",
    ),
    4033: NOT_AUTHORIZED,
    **dict.fromkeys(NO_INSTANCE, NOT_FOUND),
    4074: LOST,
}
LOGIN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."
STATUSES: Mapping[int, tuple[Row, ...]] = {
    400: (API_OFF, NOT_AUTHORIZED),
    401: (Row(ConfigError, "IAP refused the Google Cloud credentials: {reason}", LOGIN),),
    403: (API_OFF, NOT_AUTHORIZED),
    404: (NOT_FOUND,),
}
"""HTTP status -> rows; the first that fits. gcloud says of 40x: 'May be due to missing permissions'."""


def explain(ending: Ending, subject: str, instance: Instance) -> TpuctlError:
    """Return tpuctl's error; `subject` names the worker."""
    rows = STATUSES.get(ending.code, ()) if isinstance(ending, Refusal) else ()
    if ending.code in CLOSES:
        rows = (CLOSES[ending.code],)
    row = next((row for row in rows if _fits(row, ending.reason)), CLOSED if ending.code else NO_CONNECTION)
    reason = (ending.reason.strip().rstrip(".") or "it gave no reason") + (
        f" (code {ending.code})" if ending.code else ""
    )
    fields = {
        "reason": reason,
        "instance": instance.name,
        "zone": instance.zone,
        "project": instance.project,
    }
    message = f"{subject}: {row.message.format_map(fields)}."
    return row.error(message, hint=row.hint.format_map(fields), iap=ending.code, words=ending.reason)


def _fits(row: Row, reason: str) -> bool:
    return any(text in reason.lower() for text in row.texts)


SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
MOST_DATA = 16_384
"""Bytes of a data frame that a client sends, at most."""
MOST_FIELD = 1 << 20
"""Bytes of a field that we read: a longer one is no frame of this protocol."""


@dataclass(frozen=True)
class Connected:
    """The relay has reached the host."""

    tag: ClassVar = 0x0001
    session: bytes
    """Names the tunnel when it is resumed."""


@dataclass(frozen=True)
class Reconnected:
    """The relay resumes the tunnel."""

    tag: ClassVar = 0x0002
    received: int
    """Bytes of ours that it has received since the tunnel began."""


@dataclass(frozen=True)
class Data:
    """Bytes from the host, or for it."""

    tag: ClassVar = 0x0004
    payload: bytes


@dataclass(frozen=True)
class Acknowledged:
    """What the sender has received since the tunnel began."""

    tag: ClassVar = 0x0007
    received: int
    """Bytes."""


@dataclass(frozen=True)
class LongClose:
    """The relay ends the tunnel, with a code and a reason that a WebSocket's close is too short for."""

    tag: ClassVar = 0x000A
    code: int
    reason: bytes


Frame = Connected | Reconnected | Data | Acknowledged | LongClose


def encode(frame: Data | Acknowledged) -> bytes:
    """Return a frame that a client sends."""
    if isinstance(frame, Data):
        return struct.pack(">HI", Data.tag, len(frame.payload)) + frame.payload
    return struct.pack(">HQ", Acknowledged.tag, frame.received)


class FrameDecoder:
    """Turns messages into frames: a message may hold several, or a part of one."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skips_message = False

    def feed(self, data: bytes, *, ends_message: bool = True) -> Iterator[Frame]:
        """Yield the frames that are complete with a message, or with a part of it.

        What follows a tag that is not known is left out, to the end of its message, as gcloud does.
        Raises Ending for what cannot be a frame.
        """
        if not self._skips_message:
            self._buffer += data
            yield from self._complete()
        if ends_message:
            self._skips_message = False

    def _complete(self) -> Iterator[Frame]:
        while len(self._buffer) >= struct.calcsize(">H"):
            (tag,) = struct.unpack_from(">H", self._buffer)
            if tag not in READERS:
                self._buffer.clear()
                self._skips_message = True
                return
            parsed = READERS[tag](self._buffer)
            if parsed is None:
                return
            frame, size = parsed
            del self._buffer[:size]
            yield frame


def _number(kind: type[Reconnected] | type[Acknowledged], buffer: bytearray) -> tuple[Frame, int] | None:
    if len(buffer) < struct.calcsize(">HQ"):
        return None
    return kind(struct.unpack_from(">HQ", buffer)[1]), struct.calcsize(">HQ")


def _field(buffer: bytearray, header: str) -> tuple[bytes, int] | None:
    """Return the bytes whose count is the header's last number, and where they end; None if some miss."""
    start = struct.calcsize(header)
    if len(buffer) < start:
        return None
    end = start + struct.unpack_from(header, buffer)[-1]
    if end - start > MOST_FIELD:
        raise Ending(f"the relay sent a frame of {end - start} bytes")
    return (bytes(buffer[start:end]), end) if len(buffer) >= end else None


def _bytes(kind: type[Connected] | type[Data], buffer: bytearray) -> tuple[Frame, int] | None:
    parsed = _field(buffer, ">HI")
    return (kind(parsed[0]), parsed[1]) if parsed else None


def _long_close(buffer: bytearray) -> tuple[Frame, int] | None:
    parsed = _field(buffer, ">HII")
    return (LongClose(struct.unpack_from(">HI", buffer)[1], parsed[0]), parsed[1]) if parsed else None


READERS: dict[int, Callable[[bytearray], tuple[Frame, int] | None]] = {
    Connected.tag: lambda buffer: _bytes(Connected, buffer),
    Reconnected.tag: lambda buffer: _number(Reconnected, buffer),
    Data.tag: lambda buffer: _bytes(Data, buffer),
    Acknowledged.tag: lambda buffer: _number(Acknowledged, buffer),
    LongClose.tag: _long_close,
}
"""Tag -> what returns the frame at a buffer's start and its size, or None while it is not complete."""
