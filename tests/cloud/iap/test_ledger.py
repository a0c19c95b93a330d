"""Tests the counts of a tunnel's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.cloud.iap.endings import Ending
from tpuctl.cloud.iap.ledger import WINDOW, Ledger

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


def test_a_relay_that_acknowledges_nothing_holds_up_the_sender() -> None:
    ledger = Ledger()
    while not ledger.is_full:
        ledger.add(bytes(16_384))
    assert ledger.awaits_confirmation
    for _ in range(WINDOW // 16_384):
        ledger.next_chunk()
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
