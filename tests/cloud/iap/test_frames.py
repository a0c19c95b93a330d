"""Tests the codec of the relay's frames.

What users read of the end of a tunnel, by the relay's code or the status of its answer.
"""

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
    Interruption,
    LongClose,
    Reconnected,
    Refusal,
    close,
    encode,
    explain,
)
from tpuctl.cloud.iap.relay import Instance
from tpuctl.errors import ConfigError, HostError, TpuctlError

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


INSTANCE = Instance("p", "us-central1-a", "t1v-n-1-w-0")
ROLE = "roles/iap.tunnelResourceAccessor"
ASK = (
    f"Ask an owner of project p for {ROLE}: gcloud projects add-iam-policy-binding p "
    f"--member=user:YOU --role={ROLE}. Inside of its network, pass --no-iap."
)
STATE = "The host may be down: 'tpuctl ls' shows the node's state."
ENABLE = "Run 'gcloud services enable iap.googleapis.com --project p', and again in some minutes."
AGAIN = "Run the command again; what runs on the host goes on."
ABSENT = "It may still start: 'tpuctl ls' shows the node's state."


def explained(ending: Ending) -> tuple[type[TpuctlError], str, str, object]:
    error = explain(ending, "Worker 1 of 'n1'", INSTANCE)
    return type(error), error.message, error.hint, error.facts["iap"]


@pytest.mark.parametrize(
    ("code", "kind", "message", "hint"),
    [
        (4001, HostError, "its IAP tunnel was lost and cannot be resumed: why", AGAIN),
        (4002, HostError, "its IAP tunnel was lost and cannot be resumed: why", AGAIN),
        (
            4003,
            HostError,
            "IAP cannot reach its port 22: why",
            "It may still boot, or no firewall rule lets 35.235.240.0/20 reach it: "
            "'tpuctl doctor' checks that.",
        ),
        (4033, ConfigError, "you may not use IAP's tunnels to it: why", ASK),
        (4047, HostError, "IAP finds no instance t1v-n-1-w-0 in us-central1-a: why", ABSENT),
        (4051, HostError, "IAP finds no instance t1v-n-1-w-0 in us-central1-a: why", ABSENT),
        (4074, HostError, "its IAP tunnel was lost and cannot be resumed: why", AGAIN),
        (4079, HostError, "IAP's relay ended the tunnel: why", STATE),
        (1008, HostError, "IAP's relay ended the tunnel: why", STATE),
        (1011, HostError, "IAP's relay ended the tunnel: why", STATE),
        (404, HostError, "IAP's relay ended the tunnel: why", STATE),
    ],
)
def test_a_close_is_explained_by_its_code(
    code: int, kind: type[TpuctlError], message: str, hint: str
) -> None:
    expected = (kind, f"Worker 1 of 'n1': {message} (code {code}).", hint, code)
    assert explained(close(code, " why. ")) == expected


@pytest.mark.parametrize(
    ("status", "body", "kind", "message", "hint"),
    [
        (400, "no", ConfigError, "you may not use IAP's tunnels to it: no", ASK),
        (401, "no", ConfigError, "IAP refused the Google Cloud credentials: no",
         "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."),
        (403, "no", ConfigError, "you may not use IAP's tunnels to it: no", ASK),
        (404, "no", HostError, "IAP finds no instance t1v-n-1-w-0 in us-central1-a: no", ABSENT),
        (500, "no", HostError, "IAP's relay ended the tunnel: no", STATE),
        (500, "", HostError, "IAP's relay ended the tunnel: HTTP status 500", STATE),
    ],
)  # fmt: skip
def test_a_refusal_is_explained_by_its_status(
    status: int, body: str, kind: type[TpuctlError], message: str, hint: str
) -> None:
    expected = (kind, f"Worker 1 of 'n1': {message} (code {status}).", hint, status)
    assert explained(Refusal(status, body)) == expected


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize(
    "body", ["SERVICE_DISABLED", "API Has Not Been Used in project 1", "It is disabled."]
)
def test_an_api_that_is_off_is_told_by_the_words(status: int, body: str) -> None:
    kind, message, hint, _ = explained(Refusal(status, body))
    assert (kind, hint) == (ConfigError, ENABLE)
    assert message.startswith("Worker 1 of 'n1': the Cloud Identity-Aware Proxy API is off in project p")
    assert explained(Refusal(401, body))[2] != ENABLE


def test_without_a_code_there_was_no_connection() -> None:
    hint = "Check your network, and run the command again."
    for reason, words in (("cut", "cut"), ("", "it gave no reason"), (" . ", "it gave no reason")):
        message = f"Worker 1 of 'n1': no connection through IAP: {words}."
        assert explained(Interruption(reason)) == (HostError, message, hint, 0)


@pytest.mark.parametrize(
    ("code", "kind", "is_normal"),
    [
        (1000, Ending, True), (4009, Ending, True), (4010, Ending, True),
        (1001, Interruption, False), (1006, Interruption, False), (1011, Interruption, False),
        (1012, Interruption, False), (1013, Interruption, False), (4002, Interruption, False),
        (4004, Interruption, False),
        (1002, Ending, False), (1008, Ending, False), (4001, Ending, False), (4003, Ending, False),
        (4033, Ending, False), (4047, Ending, False),
    ],
)  # fmt: skip
def test_a_code_decides_whether_the_tunnel_goes_on(code: int, kind: type[Ending], is_normal: bool) -> None:
    ending = close(code, "why")
    assert (type(ending), ending.is_normal, ending.code, ending.reason) == (kind, is_normal, code, "why")


def test_a_reason_is_shown_up_to_300_characters() -> None:
    assert close(4003, "x" * 301).reason == "x" * 300
    assert (Ending("x").code, Ending("x").is_normal) == (0, False)
