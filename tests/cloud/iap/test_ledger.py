"""Tests the counts of a tunnel's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.cloud.iap.frames import Ending
from tpuctl.cloud.iap.tunnel import WINDOW, Ledger

STEPS = st.lists(
    st.one_of(
        st.builds(lambda data: ("add", data), st.binary(min_size=1, max_size=9)),
        st.builds(lambda share: ("send", share), st.integers(1, 4)),
        st.builds(lambda share: ("confirm", share), st.floats(0, 1)),
        st.builds(lambda share: ("lose", share), st.floats(0, 1)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_relay_gets_every_byte_once_wherever_connections_are_lost(
    steps: list[tuple[str, object]],
) -> None:
    """The relay has a prefix of what was sent; each new connection begins where that ends."""
    ledger, whole, relay, confirmed, in_flight = Ledger(), b"", b"", 0, b""
    for step, value in steps:
        if step == "add":
            assert isinstance(value, bytes)
            whole += value
            ledger.add(value)
        elif step == "send":
            for _ in range(int(value)):  # type: ignore[call-overload]
                if ledger.has_unsent:
                    in_flight += ledger.next_chunk()
        elif step == "confirm":
            arrived = round(len(in_flight) * float(value))  # type: ignore[arg-type]
            relay, in_flight = relay + in_flight[:arrived], in_flight[arrived:]
            confirmed = len(relay)
            ledger.confirm(confirmed)
        else:
            arrived = round(len(in_flight) * float(value))  # type: ignore[arg-type]
            relay, in_flight = relay + in_flight[:arrived], b""
            ledger.rewind(len(relay))
        assert relay + in_flight == whole[: len(relay + in_flight)]
    ledger.rewind(len(relay))
    while ledger.has_unsent:
        relay += ledger.next_chunk()
    assert relay == whole
    ledger.confirm(len(whole))
    assert not ledger.awaits_confirmation


def test_an_acknowledgement_of_bytes_that_were_never_sent_is_refused() -> None:
    ledger = Ledger()
    ledger.add(b"abc")
    with pytest.raises(Ending, match="acknowledged 3 bytes, which cannot be"):
        ledger.confirm(3)
    ledger.next_chunk()
    ledger.confirm(3)
    with pytest.raises(Ending, match="acknowledged 2 bytes, which cannot be"):
        ledger.confirm(2)


@pytest.mark.parametrize("sent", [b"", b"abc"])
def test_one_byte_more_than_was_sent_is_refused(sent: bytes) -> None:
    ledger = Ledger()
    ledger.add(b"abc")
    if sent:
        assert ledger.next_chunk() == sent
    with pytest.raises(Ending, match="which cannot be"):
        ledger.confirm(len(sent) + 1)
    ledger.confirm(len(sent))
    assert ledger.confirmed == len(sent)


def test_a_chunk_that_was_confirmed_is_not_sent_again() -> None:
    ledger = Ledger()
    for data in (b"ab", b"cd", b"ef"):
        ledger.add(data)
        ledger.next_chunk()
    ledger.confirm(2)
    assert not ledger.has_unsent
    ledger.rewind(3)
    assert [ledger.next_chunk(), ledger.next_chunk()] == [b"d", b"ef"]
    ledger.rewind(6)
    assert not ledger.has_unsent


def test_what_is_added_after_all_was_confirmed_is_sent() -> None:
    ledger = Ledger()
    for data in (b"ab", b"cd"):
        ledger.add(data)
    ledger.next_chunk()
    ledger.confirm(2)
    assert ledger.next_chunk() == b"cd"
    ledger.confirm(4)
    ledger.add(b"ef")
    assert ledger.has_unsent
    assert ledger.next_chunk() == b"ef"
    ledger.confirm(6)


def test_what_a_lost_connection_carried_may_turn_up_late() -> None:
    ledger = Ledger()
    for data in (b"ab", b"cd"):
        ledger.add(data)
        ledger.next_chunk()
    ledger.rewind(0)
    assert ledger.next_chunk() == b"ab"
    ledger.rewind(4)
    assert (ledger.has_unsent, ledger.confirmed) == (False, 4)


@pytest.mark.parametrize(("frames", "awaits"), [(1, False), (2, False), (3, True)])
def test_a_confirmation_is_awaited_after_more_than_two_full_frames(frames: int, awaits: bool) -> None:
    """As the relay sends it, says gcloud's client."""
    ledger = Ledger()
    for _ in range(frames):
        ledger.add(bytes(16_384))
    assert ledger.awaits_confirmation == awaits
    ledger.add(b"x")
    assert ledger.awaits_confirmation == (frames >= 2)


def test_a_relay_that_acknowledges_nothing_holds_up_the_sender() -> None:
    ledger = Ledger()
    while not ledger.is_full:
        ledger.add(bytes(16_384))
    assert ledger.awaits_confirmation
    count = 0
    while ledger.has_unsent:
        count += len(ledger.next_chunk())
    assert count == WINDOW
    ledger.confirm(1)
    assert not ledger.is_full


def test_what_was_received_is_acknowledged_once_and_by_the_request_that_resumes() -> None:
    ledger = Ledger()
    ledger.receive(40_000)
    assert ledger.unacknowledged == 40_000
    assert ledger.acknowledge() == 40_000
    assert ledger.unacknowledged == 0
    ledger.receive(5)
    ledger.rewind(0)
    assert ledger.unacknowledged == 0
    assert ledger.received == 40_005
