"""Feeding a command and reading what it prints: nothing is lost, and nothing is waited for in vain."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.cloud.ssh.scripted_channel import ScriptedChannel
from tpuctl.cloud.ssh.dialing import CommandTimeout, Flood
from tpuctl.cloud.ssh.session import Limit, converse

DATA = bytes(range(256)) * 400
HOUR = 3600.0
MOST = 16 << 20
"""Bytes of a stream that are kept."""


def talk(channel: Any, data: bytes = b"") -> tuple[bytes, bytes]:
    return converse(channel, data)


def test_all_input_is_sent_before_its_end() -> None:
    channel = ScriptedChannel()
    assert talk(channel, DATA) == (b"", b"")
    assert b"".join(channel.sent) == DATA
    assert max(map(len, channel.sent)) <= 32_768
    assert channel.calls[0] == "end of input"
    assert channel.calls.count("end of input") == 1


def test_a_command_that_takes_little_gets_the_rest_of_each_piece() -> None:
    channel = ScriptedChannel(sends=[1, 1000, TimeoutError(), 3, TimeoutError()])
    talk(channel, DATA)
    assert b"".join(channel.sent) == DATA


@pytest.mark.parametrize("end", [0, OSError("closed")])
def test_a_command_that_reads_no_more_keeps_its_output(end: int | Exception) -> None:
    channel = ScriptedChannel([b"enough"], [b"oh"], sends=[5, end])
    assert talk(channel, DATA) == (b"enough", b"oh")
    assert b"".join(channel.sent) == DATA[:5]


def test_output_is_taken_while_the_input_waits() -> None:
    """A command that prints before it reads on."""
    channel = ScriptedChannel([b"a", b"b", TimeoutError(), b"c"], [b"x", b"y"], sends=[TimeoutError()])
    assert talk(channel, b"z") == (b"abc", b"xy")
    assert channel.calls[:5] == ["out", "out", "errors", "errors", "end of input"]


def test_errors_are_taken_while_the_output_waits() -> None:
    """A command that prints them until it may print on."""
    channel = ScriptedChannel([TimeoutError(), b"a"], [b"x", b"y"])
    assert talk(channel) == (b"a", b"xy")
    assert channel.calls[:4] == ["end of input", "errors", "errors", "out"]


def test_no_output_for_a_while_is_no_end_of_it() -> None:
    channel = ScriptedChannel([TimeoutError(), b"a", TimeoutError()], [TimeoutError(), b"x", TimeoutError()])
    assert talk(channel) == (b"a", b"x")


def test_errors_are_read_to_their_end_after_the_output_has_ended() -> None:
    channel = ScriptedChannel([], [TimeoutError(), b"x", TimeoutError(), b"y"])
    assert talk(channel) == (b"", b"xy")
    assert channel.calls.count("out") == 1


@pytest.mark.parametrize("stream", ["out", "errors"])
def test_a_stream_may_have_sixteen_mebibytes_and_no_byte_more(stream: str) -> None:
    pieces = [bytes(1 << 15)] * (MOST >> 15)
    assert sum(map(len, talk(ScriptedChannel(**{stream: pieces})))) == MOST
    with pytest.raises(Flood, match="16,777,216"):
        talk(ScriptedChannel(**{stream: [*pieces, b"x"]}))


def test_both_streams_may_have_that_much() -> None:
    pieces = [bytes(1 << 15)] * (MOST >> 15)
    assert sum(map(len, talk(ScriptedChannel(pieces, pieces)))) == 2 * MOST


class TestLimit:
    def test_a_block_that_ends_in_time_raises_what_it_raises(self) -> None:
        channel: Any = ScriptedChannel()
        with Limit(HOUR) as limit:
            limit.bind(channel)
        with pytest.raises(ValueError, match="mine"), Limit(HOUR):
            raise ValueError("mine")
        assert not channel.closed.is_set()
        timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        for timer in timers:
            timer.join(60)
            assert not timer.is_alive()

    def test_a_channel_that_is_bound_too_late_is_closed(self) -> None:
        channel: Any = ScriptedChannel()
        Limit(HOUR).bind(channel)
        assert not channel.closed.is_set()
        Limit(0).bind(channel)
        assert channel.closed.is_set()

    def test_a_block_without_time_is_a_timeout(self) -> None:
        with pytest.raises(CommandTimeout), Limit(0):
            pass

    def test_a_channel_is_closed_when_its_time_has_passed(self) -> None:
        channel: Any = ScriptedChannel()

        def use() -> None:
            with Limit(0.01) as limit:
                limit.bind(channel)
                assert channel.closed.wait(60)
                raise EOFError

        with pytest.raises(CommandTimeout) as raised:
            use()
        assert isinstance(raised.value.__cause__, EOFError)

    def test_an_interrupt_is_no_timeout(self) -> None:
        with pytest.raises(KeyboardInterrupt), Limit(0):
            raise KeyboardInterrupt
