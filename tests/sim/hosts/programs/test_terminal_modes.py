"""The terminal modes of a client, by the opcodes of RFC 4254, section 8, on a terminal of this system."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator

import pytest

from tpuctl.sim.hosts.programs.programs import set_modes

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
