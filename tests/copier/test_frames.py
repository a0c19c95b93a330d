"""Records and pieces of files arrive in their order, whatever the sizes of pieces and reads."""

from __future__ import annotations

import pytest

from tpuctl.copier.frames import BUFFER, Frames


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
