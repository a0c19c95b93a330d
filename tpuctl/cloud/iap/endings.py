"""Explains how tunnels end: the relay's codes, and the answers to a request for one.

Codes: `SshRelayCloseCode` of Google's IAP Desktop, and gcloud's `iap_tunnel_websocket.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
