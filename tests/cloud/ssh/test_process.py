"""A program whose streams are read meanwhile: what silence, ends and lost connections mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.cloud.ssh.scripted_channel import LOST, ScriptedChannel, ScriptedTransport
from tpuctl.cloud.ssh import process
from tpuctl.cloud.ssh.process import RemoteProcess
from tpuctl.errors import HostError

WORKER = "worker 2 of 'n1'"


class Signs:
    """The host's answers when it is asked for a sign of life."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_silent = False

    def __call__(self, transport: object, seconds: float) -> bool:
        self.asked += 1
        return self.is_silent


@pytest.fixture(autouse=True)
def signs(monkeypatch: pytest.MonkeyPatch) -> Signs:
    signs = Signs()
    monkeypatch.setattr(process, "is_silent", signs)
    return signs


def started(channel: ScriptedChannel, *, is_lost: bool = False) -> RemoteProcess:
    transport: Any = ScriptedTransport(channel, is_lost=is_lost)
    return RemoteProcess(transport, WORKER, "cat -", window=77)


def all_of(stream: Iterable[bytes]) -> bytes:
    return b"".join(stream)


def test_a_command_is_run_in_a_window() -> None:
    channel = ScriptedChannel()
    transport: Any = ScriptedTransport(channel)
    program = RemoteProcess(transport, WORKER, "cat -", window=77)
    assert (transport.opened, channel.commands) == ([{"window_size": 77}], ["cat -"])
    program.end_input()
    assert channel.calls == ["end of input"]
    program.close()
    assert channel.closed.is_set()


def test_a_host_that_gives_a_sign_of_life_is_waited_for(signs: Signs) -> None:
    program = started(ScriptedChannel([TimeoutError(), b"a", TimeoutError(), TimeoutError(), b"b"]))
    assert all_of(iter(program.read, b"")) == b"ab"
    assert signs.asked == 3
    assert program.exit_code() == 0


def test_a_host_that_gives_none_has_stopped_answering(signs: Signs) -> None:
    signs.is_silent = True
    program = started(ScriptedChannel([TimeoutError()], code=-1), is_lost=True)
    assert program.read() == b""
    with pytest.raises(HostError, match=f"^{WORKER}: it has stopped answering"):
        program.exit_code()


def test_who_reads_errors_asks_for_no_sign_of_life(signs: Signs) -> None:
    program = started(ScriptedChannel(errors=[TimeoutError(), b"x", TimeoutError()]))
    assert [program.read_errors(), program.read_errors()] == [b"x", b""]
    assert signs.asked == 0


def test_a_host_that_gives_signs_of_life_and_no_output_is_left_after_the_patience(signs: Signs) -> None:
    channel = ScriptedChannel([TimeoutError()], code=-1)
    program = started(channel)
    assert program.read(0) == b""
    assert (channel.closed.is_set(), signs.asked) == (True, 1)
    with pytest.raises(HostError, match=f"^{WORKER}: it has stopped answering"):
        program.exit_code()


def test_all_input_is_written_in_packets(signs: Signs) -> None:
    channel = ScriptedChannel(sends=[10, TimeoutError(), 20])
    data = bytes(range(256)) * 400
    started(channel).write(data)
    assert all_of(channel.sent) == data
    assert max(map(len, channel.sent)) < 32_768
    assert signs.asked == 1


def test_a_program_that_reads_no_more_is_an_error_of_the_host(signs: Signs) -> None:
    program = started(ScriptedChannel(sends=[3, OSError("Socket is closed")]))
    with pytest.raises(HostError, match=f"^{WORKER}: it closed the connection"):
        program.write(b"abcdef")
    assert signs.asked == 0


@pytest.mark.parametrize("code", [0, 1, 255])
def test_an_exit_code_is_returned(code: int) -> None:
    assert started(ScriptedChannel(code=code), is_lost=True).exit_code() == code


@pytest.mark.parametrize(
    ("is_lost", "text"), [(True, "it closed the connection"), (False, "a signal ended the command's shell")]
)
def test_without_an_exit_code_the_connection_or_the_shell_has_ended(is_lost: bool, text: str) -> None:
    with pytest.raises(HostError, match=f"^{WORKER}: {text}"):
        started(ScriptedChannel(code=-1), is_lost=is_lost).exit_code()


def test_a_connection_that_ends_after_its_channels_is_waited_for() -> None:
    transport: Any = ScriptedTransport(ScriptedChannel(code=-1), is_lost=True, is_late=True)
    with pytest.raises(HostError, match="it closed the connection"):
        RemoteProcess(transport, WORKER, "true").exit_code()


def test_a_command_that_cannot_be_started_names_the_worker() -> None:
    channel = ScriptedChannel()
    channel.refusal = LOST
    with pytest.raises(HostError, match=f"^{WORKER}: "):
        started(channel)
