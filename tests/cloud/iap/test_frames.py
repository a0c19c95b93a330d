"""Tests the codec of the relay's frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.cloud.iap.frames import (
    Acknowledged,
    Connected,
    Data,
    Ending,
    Frame,
    FrameDecoder,
    LongClose,
    Reconnected,
    encode,
)

NUMBERS = st.integers(0, 2**64 - 1)
FRAMES = st.one_of(
    st.builds(Connected, st.binary(max_size=40)),
    st.builds(Reconnected, NUMBERS),
    st.builds(Data, st.binary(max_size=200)),
    st.builds(Acknowledged, NUMBERS),
    st.builds(LongClose, st.integers(0, 2**32 - 1), st.binary(max_size=40)),
)


def wire(frame: Frame) -> bytes:
    """The bytes of a frame, as the documents of the protocol have them."""
    match frame:
        case Connected(session):
            return b"\x00\x01" + len(session).to_bytes(4, "big") + session
        case Reconnected(received):
            return b"\x00\x02" + received.to_bytes(8, "big")
        case Data(payload):
            return b"\x00\x04" + len(payload).to_bytes(4, "big") + payload
        case Acknowledged(received):
            return b"\x00\x07" + received.to_bytes(8, "big")
        case LongClose(code, reason):
            return b"\x00\x0a" + code.to_bytes(4, "big") + len(reason).to_bytes(4, "big") + reason


@given(st.lists(FRAMES), st.lists(st.integers(1, 30), min_size=1))
def test_frames_split_and_joined_in_any_way_are_the_same_frames(
    frames: list[Frame], sizes: list[int]
) -> None:
    stream, decoder, decoded = b"".join(map(wire, frames)), FrameDecoder(), list[Frame]()
    turn = 0
    while stream:
        piece, stream = stream[: sizes[turn % len(sizes)]], stream[sizes[turn % len(sizes)] :]
        decoded += decoder.feed(piece, ends_message=turn % 3 != 0)
        turn += 1
    assert decoded == frames


@given(st.one_of(st.builds(Data, st.binary(max_size=200)), st.builds(Acknowledged, NUMBERS)))
def test_what_we_send_is_what_the_protocol_says(frame: Data | Acknowledged) -> None:
    assert encode(frame) == wire(frame)


def test_an_unknown_tag_is_left_out_to_the_end_of_its_message() -> None:
    decoder = FrameDecoder()
    assert list(decoder.feed(wire(Data(b"a")) + b"\x00\x09 whatever", ends_message=False)) == [Data(b"a")]
    assert list(decoder.feed(wire(Data(b"b")))) == []
    assert list(decoder.feed(wire(Data(b"c")))) == [Data(b"c")]


def test_an_unknown_tag_alone_takes_nothing_of_the_next_message_with_it() -> None:
    decoder = FrameDecoder()
    assert list(decoder.feed(b"\x00\x09")) == []
    assert list(decoder.feed(wire(Data(b"a")))) == [Data(b"a")]


@pytest.mark.parametrize(
    "frame", [Connected(bytes(1 << 20)), Data(bytes(1 << 20)), LongClose(1, bytes(1 << 20))]
)
def test_a_frame_of_a_mebibyte_is_read_and_no_longer_one(frame: Connected | Data | LongClose) -> None:
    encoded = wire(frame)
    assert list(FrameDecoder().feed(encoded)) == [frame]
    header = bytearray(encoded[: len(encoded) - (1 << 20)])
    header[-1] += 1
    with pytest.raises(Ending, match="a frame of 1048577 bytes"):
        list(FrameDecoder().feed(bytes(header)))


@pytest.mark.parametrize("tag", [1, 4])
def test_a_length_that_no_relay_sends_is_refused_before_it_is_read(tag: int) -> None:
    with pytest.raises(Ending, match="a frame of 4294967295 bytes"):
        list(FrameDecoder().feed(struct.pack(">HI", tag, 2**32 - 1)))
