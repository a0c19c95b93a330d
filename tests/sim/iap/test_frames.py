"""The frames of the relay's protocol, byte by byte, as its clients write and read them.

The codes with which the relay closes a tunnel, by IAP Desktop's `SshRelayConstants.cs`.
"""

from __future__ import annotations

import struct

import pytest

from tpuctl.sim.iap import targets
from tpuctl.sim.iap.relay import Ack, Data, FrameReader, ack, connected, data, reconnected
from tpuctl.sim.iap.targets import Closing

LARGEST = 16_384


def test_frames_to_the_client() -> None:
    assert connected("sid") == b"\x00\x01\x00\x00\x00\x03sid"
    assert connected("é") == b"\x00\x01\x00\x00\x00\x02\xc3\xa9"
    assert reconnected(258) == b"\x00\x02\x00\x00\x00\x00\x00\x00\x01\x02"
    assert data(b"ab") == b"\x00\x04\x00\x00\x00\x02ab"
    assert ack(1 << 40) == b"\x00\x07\x00\x00\x01\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_from_the_client_may_be_split_anywhere(size: int) -> None:
    stream = data(b"hello") + ack(5) + data(b"") + data(b"x") + ack((1 << 64) - 1)
    reader = FrameReader()
    frames = [
        frame for start in range(0, len(stream), size) for frame in reader.feed(stream[start : start + size])
    ]
    assert frames == [Data(b"hello"), Ack(5), Data(b""), Data(b"x"), Ack((1 << 64) - 1)]


def test_a_frame_has_a_largest_size() -> None:
    assert list(FrameReader().feed(data(bytes(LARGEST)))) == [Data(bytes(LARGEST))]
    with pytest.raises(Closing) as raised:
        list(FrameReader().feed(struct.pack(">HI", 4, LARGEST + 1)))
    assert raised.value.code == 4013


@pytest.mark.parametrize("tag", [0, 1, 2, 3, 5, 6, 8, 0x0400])
def test_another_tag_ends_the_tunnel(tag: int) -> None:
    reader = FrameReader()
    frames = reader.feed(data(b"a") + struct.pack(">H", tag))
    assert next(frames) == Data(b"a")
    with pytest.raises(Closing) as raised:
        next(frames)
    assert raised.value.code == 4008


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
