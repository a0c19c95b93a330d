"""Pipes and terminals of programs, read and written while the loop goes on.

The terminal modes of a client, by the opcodes of RFC 4254, section 8, on a terminal of this system.
"""

from __future__ import annotations

import asyncio
import os
import pty
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.sim.hosts.programs.processes import read, readable, writable, write
from tpuctl.sim.hosts.programs.programs import Command, Programs, set_modes

SIZE = 1 << 20
"""Bytes: more than a pipe holds."""


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """Both ends of a pipe that does not block; a test that closes one takes it out."""
    ends = list(os.pipe2(os.O_NONBLOCK))
    yield ends
    for end in ends:
        os.close(end)


def test_all_is_written_and_read_though_the_pipe_is_small(pipe: list[int]) -> None:
    data = os.urandom(SIZE)

    async def run() -> bytes:
        writing = asyncio.create_task(write(pipe[1], data))
        received = bytearray()
        while len(received) < SIZE:
            received += await read(pipe[0])
        await writing
        return bytes(received)

    assert asyncio.run(run()) == data


def test_the_end_is_empty_and_nobody_reads_what_is_written_then(pipe: list[int]) -> None:
    os.write(pipe[1], b"last")
    os.close(pipe.pop())
    assert [asyncio.run(read(pipe[0])), asyncio.run(read(pipe[0]))] == [b"last", b""]


def test_a_reader_that_has_gone_is_a_broken_pipe(pipe: list[int]) -> None:
    os.close(pipe.pop(0))
    with pytest.raises(BrokenPipeError):
        asyncio.run(write(pipe[0], b"x"))


def test_the_end_of_a_terminal_is_empty() -> None:
    """Linux says EIO there: the last program on it has ended."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    os.close(theirs)
    assert asyncio.run(read(ours)) == b""
    os.close(ours)


def test_another_error_is_none_of_the_end(pipe: list[int]) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        asyncio.run(read(pipe[1]))


def test_who_waits_can_be_cancelled_and_wait_again(pipe: list[int]) -> None:
    async def run() -> None:
        waiting = asyncio.create_task(readable(pipe[0]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        waiting = asyncio.create_task(readable(pipe[0]))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(pipe[1], b"x")
        await waiting
        await writable(pipe[1])

    asyncio.run(run())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_program_that_cannot_be_started_leaves_no_descriptor_open(tmp_path: Path) -> None:
    programs = Programs()
    command = Command("/bin/true", ["true"], {}, tmp_path / "nowhere")
    starts = 20
    for start in (programs.start, lambda command: programs.start_on_terminal(command, (80, 24, 0, 0))):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(starts):
            with pytest.raises(OSError, match="nowhere"):
                start(command)
        opened = len(os.listdir("/proc/self/fd")) - before
        assert opened < starts, "threads of other tests open some, too"


INPUT, OUTPUT, CONTROL, LOCAL, CHARACTERS = 0, 1, 2, 3, 6
"""Indices in what termios.tcgetattr returns."""
FLAGS = {
    # opcode: index and name; those that termios has no name for are left out
    30: (INPUT, "IGNPAR"), 31: (INPUT, "PARMRK"), 32: (INPUT, "INPCK"), 33: (INPUT, "ISTRIP"),
    34: (INPUT, "INLCR"), 35: (INPUT, "IGNCR"), 36: (INPUT, "ICRNL"), 37: (INPUT, "IUCLC"),
    38: (INPUT, "IXON"), 39: (INPUT, "IXANY"), 40: (INPUT, "IXOFF"), 41: (INPUT, "IMAXBEL"),
    50: (LOCAL, "ISIG"), 51: (LOCAL, "ICANON"), 52: (LOCAL, "XCASE"), 53: (LOCAL, "ECHO"),
    54: (LOCAL, "ECHOE"), 55: (LOCAL, "ECHOK"), 56: (LOCAL, "ECHONL"), 57: (LOCAL, "NOFLSH"),
    58: (LOCAL, "TOSTOP"), 59: (LOCAL, "IEXTEN"), 60: (LOCAL, "ECHOCTL"), 61: (LOCAL, "ECHOKE"),
    70: (OUTPUT, "OPOST"), 71: (OUTPUT, "OLCUC"), 72: (OUTPUT, "ONLCR"), 73: (OUTPUT, "OCRNL"),
    74: (OUTPUT, "ONOCR"), 75: (OUTPUT, "ONLRET"), 93: (CONTROL, "PARODD"),
}  # fmt: skip
FLAGS_HERE = {
    opcode: (index, getattr(termios, name))
    for opcode, (index, name) in FLAGS.items()
    if hasattr(termios, name)
}
CONTROL_CHARACTERS = {
    1: "VINTR", 2: "VQUIT", 3: "VERASE", 4: "VKILL", 5: "VEOF", 6: "VEOL", 7: "VEOL2", 8: "VSTART",
    9: "VSTOP", 10: "VSUSP", 12: "VREPRINT", 13: "VWERASE", 14: "VLNEXT",
}  # fmt: skip


@pytest.fixture
def terminal() -> Iterator[int]:
    ends = os.openpty()
    yield ends[1]
    for end in ends:
        os.close(end)


def test_every_flag_is_switched_on_and_off_and_no_other(terminal: int) -> None:
    for opcode, (index, bit) in FLAGS_HERE.items():
        set_modes(terminal, {opcode: 0})
        off = termios.tcgetattr(terminal)[:CHARACTERS]
        set_modes(terminal, {opcode: 1})
        on = termios.tcgetattr(terminal)[:CHARACTERS]
        assert (off[index] & bit, on[index] & bit) == (0, bit), FLAGS[opcode]
        off[index] |= bit
        assert on == off, FLAGS[opcode]


def test_utf_8_is_a_flag_that_python_has_no_name_for(terminal: int) -> None:
    set_modes(terminal, {42: 1})
    on = termios.tcgetattr(terminal)[INPUT]
    set_modes(terminal, {42: 0})
    assert on ^ termios.tcgetattr(terminal)[INPUT] == 0x4000


def test_every_character_is_set_and_no_other(terminal: int) -> None:
    for opcode, name in CONTROL_CHARACTERS.items():
        before = termios.tcgetattr(terminal)[CHARACTERS]
        set_modes(terminal, {opcode: 7})
        before[getattr(termios, name)] = b"\x07"
        assert termios.tcgetattr(terminal)[CHARACTERS] == before, name


def test_a_character_of_255_is_switched_off(terminal: int) -> None:
    set_modes(terminal, {1: 255, 2: 254, 3: 0x141})
    characters = termios.tcgetattr(terminal)[CHARACTERS]
    disabled = bytes([os.fpathconf(terminal, "PC_VDISABLE") & 0xFF])
    assert characters[termios.VINTR] == disabled
    assert characters[termios.VQUIT] == b"\xfe"
    assert characters[termios.VERASE] == b"A", "a character has eight bits"


def test_speeds_are_those_that_the_system_has(terminal: int) -> None:
    set_modes(terminal, {128: 9600, 129: 9600})
    assert termios.tcgetattr(terminal)[4:6] == [termios.B9600, termios.B9600]
    set_modes(terminal, {128: 12345, 129: 12345})
    assert termios.tcgetattr(terminal)[4:6] == [termios.B9600, termios.B9600]
    set_modes(terminal, {129: 38400})
    assert termios.tcgetattr(terminal)[5] == termios.B38400


def test_other_opcodes_change_nothing(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    set_modes(terminal, {0: 1, 160: 1, 200: 1})
    assert termios.tcgetattr(terminal) == before
