"""The codes with which the relay closes a WebSocket, as in IAP Desktop's `SshRelayConstants.cs`.

Users have reported the reasons of 4003, 4033 and 4047 (such as hashicorp/packer-plugin-googlecompute#195 and
google-github-actions/ssh-compute#44). The other reasons are ours.
"""

from __future__ import annotations

UNKNOWN = 4000
SESSION_UNKNOWN = 4001
SESSION_IN_USE = 4002
BACKEND_UNREACHABLE = 4003
REAUTHENTICATION_REQUIRED = 4004
BAD_ACK = 4005
INVALID_ACK = 4006
INVALID_OPCODE = 4007
INVALID_TAG = 4008
WRITE_FAILED = 4009
READ_FAILED = 4010
INVALID_DATA = 4013
NOT_AUTHORIZED = 4033
LOOKUP_FAILED = 4047
REWIND_FAILED = 4074

REASONS = {
    UNKNOWN: "unknown error",
    SESSION_UNKNOWN: "session not found",
    SESSION_IN_USE: "session in use",
    BACKEND_UNREACHABLE: "failed to connect to backend",
    REAUTHENTICATION_REQUIRED: "reauthentication required",
    BAD_ACK: "ack is lower than an earlier one",
    INVALID_ACK: "ack is higher than the bytes sent",
    INVALID_OPCODE: "message is not binary",
    INVALID_TAG: "unknown tag",
    WRITE_FAILED: "failed to write to backend",
    READ_FAILED: "backend closed the connection",
    INVALID_DATA: "data frame is too long",
    NOT_AUTHORIZED: "not authorized",
    LOOKUP_FAILED: "Failed to lookup instance",
    REWIND_FAILED: "failed to rewind",
}

RESUMABLE = (REAUTHENTICATION_REQUIRED, SESSION_IN_USE)
"""Codes after which the tunnel is still there: for the same client with another token, or for another."""


class Closing(Exception):
    """The relay closes the WebSocket with a code, 0 for a reset; the tunnel may be `resumable`."""

    def __init__(self, code: int, *, resumable: bool | None = None) -> None:
        self.code = code
        self.reason = REASONS.get(code, "")
        self.resumable = code in RESUMABLE if resumable is None else resumable
        super().__init__(self.reason)
