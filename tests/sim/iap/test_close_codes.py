"""The codes with which the relay closes a tunnel, by IAP Desktop's `SshRelayConstants.cs`."""

from __future__ import annotations

import pytest

from tpuctl.sim.iap import targets
from tpuctl.sim.iap.targets import Closing

CODES = {
    # name: code, and whether the tunnel is still there
    "UNKNOWN": (4000, False),
    "SESSION_UNKNOWN": (4001, False),
    "SESSION_IN_USE": (4002, True),
    "BACKEND_UNREACHABLE": (4003, False),
    "REAUTHENTICATION_REQUIRED": (4004, True),
    "BAD_ACK": (4005, False),
    "INVALID_ACK": (4006, False),
    "INVALID_OPCODE": (4007, False),
    "INVALID_TAG": (4008, False),
    "WRITE_FAILED": (4009, False),
    "READ_FAILED": (4010, False),
    "INVALID_DATA": (4013, False),
    "NOT_AUTHORIZED": (4033, False),
    "LOOKUP_FAILED": (4047, False),
    "REWIND_FAILED": (4074, False),
}
REPORTED = {4003: "failed to connect to backend", 4033: "not authorized", 4047: "Failed to lookup instance"}
"""The reasons that users of Google's relay have seen."""


@pytest.mark.parametrize("name", CODES)
def test_a_code_has_a_reason_and_may_leave_the_tunnel(name: str) -> None:
    code, resumable = CODES[name]
    assert getattr(targets, name) == code
    closing = Closing(code)
    assert (closing.code, closing.resumable) == (code, resumable)
    assert closing.reason
    assert closing.reason == str(closing) == REPORTED.get(code, closing.reason)
    assert Closing(code, resumable=True).resumable
    assert not Closing(code, resumable=False).resumable


def test_other_codes_have_no_reason() -> None:
    assert (Closing(0).reason, Closing(0).resumable, Closing(1011).reason) == ("", False, "")
