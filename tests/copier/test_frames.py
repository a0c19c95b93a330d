"""Records and pieces of files arrive in their order, whatever the sizes of pieces and reads."""

from __future__ import annotations

import pytest

from tpuctl.copier.frames import BUFFER, HEAD, LONGEST, Frames, ProtocolError


@pytest.mark.parametrize("size", [0, 1, BUFFER - 1, BUFFER, 3 * BUFFER])
@pytest.mark.parametrize("read", [1 << 12, 1 << 20])
def test_pieces_and_records_arrive_in_their_order(size: int, read: int) -> None:
    wire = bytearray()

    def take() -> bytes:
        data = bytes(wire[:read])
        del wire[:read]
        return data

    frames = Frames(take, wire.extend)
    sent = [{"begin": 0}, b"a" * size, b"b" * size, {"sum": "x"}, b"c", {"sent": True}]
    for item in sent:
        frames.send_data(item) if isinstance(item, bytes) else frames.send(item)
    frames.flush()
    assert [frames.receive() for _ in sent] == sent
    with pytest.raises(EOFError):
        frames.receive()


def test_a_frame_is_a_tag_a_length_of_four_bytes_and_the_bytes() -> None:
    wire = bytearray()
    frames = Frames(lambda: b"", wire.extend)
    frames.send({"go": 1})
    frames.send_data(b"12345")
    frames.flush()
    assert bytes(wire) == b'J\0\0\0\x09{"go": 1}D\0\0\0\x0512345'


@pytest.mark.parametrize(
    ("size", "writes"),
    [
        (BUFFER - HEAD.size - 1, []),
        (BUFFER - HEAD.size, [BUFFER]),
        (BUFFER, [BUFFER + HEAD.size]),
        (3 * BUFFER, [3 * BUFFER + HEAD.size]),
    ],
)
def test_what_is_sent_is_collected_up_to_64_kib(size: int, writes: list[int]) -> None:
    assert BUFFER == 64 << 10
    written: list[int] = []
    frames = Frames(lambda: b"", lambda data: written.append(len(data)))
    frames.send_data(bytes(size))
    assert written == writes
    frames.flush()
    frames.flush()
    assert sum(written) == size + HEAD.size


def test_a_large_piece_takes_along_what_was_collected() -> None:
    written: list[int] = []
    frames = Frames(lambda: b"", lambda data: written.append(len(data)))
    frames.send_data(b"1")
    frames.send_data(bytes(BUFFER))
    frames.flush()
    assert written == [HEAD.size + 1 + HEAD.size + BUFFER]


def arriving(data: bytes) -> Frames:
    """Return the frames of a stream that has only these bytes."""
    pieces = [data]
    return Frames(lambda: pieces.pop() if pieces else b"", lambda data: None)


@pytest.mark.parametrize(
    "data",
    [
        HEAD.pack(b"D", LONGEST + 1),
        HEAD.pack(b"J", LONGEST + 1),
        HEAD.pack(b"X", 1) + b"1",
        b"Last login: Thursday",
    ],
    ids=["a longer piece", "a longer record", "another tag", "a greeting"],
)
def test_what_is_no_frame_is_refused_before_it_is_read(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^the other end does not speak our protocol$"):
        arriving(data).receive()


def test_the_longest_frame_has_16_mib() -> None:
    assert LONGEST == 16 << 20
    assert arriving(HEAD.pack(b"D", LONGEST) + bytes(LONGEST)).receive() == bytes(LONGEST)
    with pytest.raises(EOFError):
        arriving(HEAD.pack(b"D", LONGEST)).receive()


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_record_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^the other end sends no record$"):
        arriving(HEAD.pack(b"J", len(text)) + text).receive()


def test_a_piece_is_refused_where_a_record_is_due() -> None:
    with pytest.raises(ProtocolError, match=r"^the other end sends a file before it is due$"):
        arriving(HEAD.pack(b"D", 1) + b"1").receive_record()
