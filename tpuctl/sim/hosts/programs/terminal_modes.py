"""Sets a client's terminal modes on a host's terminal: RFC 4254, section 8."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator, Mapping

import asyncssh

CHARACTERS = (
    *("VINTR", "VQUIT", "VERASE", "VKILL", "VEOF", "VEOL", "VEOL2", "VSTART", "VSTOP", "VSUSP", "VDSUSP"),
    *("VREPRINT", "VWERASE", "VLNEXT", "VSWTCH", "VSTATUS", "VDISCARD"),
)
FLAGS = {
    # index in what termios.tcgetattr returns: names of its bits
    0: (
        *("IGNPAR", "PARMRK", "INPCK", "ISTRIP", "INLCR", "IGNCR", "ICRNL", "IUCLC", "IXON", "IXANY"),
        *("IXOFF", "IMAXBEL", "IUTF8"),
    ),
    1: ("OPOST", "OLCUC", "ONLCR", "OCRNL", "ONOCR", "ONLRET"),
    2: ("CS7", "CS8", "PARENB", "PARODD"),
    3: (
        *("ISIG", "ICANON", "XCASE", "ECHO", "ECHOE", "ECHOK", "ECHONL", "NOFLSH", "TOSTOP", "IEXTEN"),
        *("ECHOCTL", "ECHOKE", "PENDIN"),
    ),
}
SPEEDS = {4: "OP_ISPEED", 5: "OP_OSPEED"}
CONTROL_CHARACTERS = 6
"""Index of their list in what termios.tcgetattr returns."""

ASYNCSSH_NAMES = {"VWERASE": "WERASE"}
"""Names in asyncssh where they are not the system's."""
EXTRA_BITS = {"IUTF8": 0x4000} if sys.platform in ("linux", "darwin") else {}
"""Bits that Python's termios has no name for."""
DISABLED = 255
"""The value in SSH for a character that is switched off."""


def set_modes(terminal: int, modes: Mapping[int, int]) -> None:
    """Set the client's modes (opcode: value) that this system has; others stay as they are."""
    state = termios.tcgetattr(terminal)
    for index, bit, value in _bits(modes):
        state[index] = state[index] | bit if value else state[index] & ~bit
    for name in CHARACTERS:
        position = getattr(termios, name, None)
        if _opcode(name) in modes and position is not None:
            state[CONTROL_CHARACTERS][position] = _character(terminal, modes[_opcode(name)])
    for index, name in SPEEDS.items():
        speed = getattr(termios, f"B{modes.get(_opcode(name))}", None)
        state[index] = state[index] if speed is None else speed
    termios.tcsetattr(terminal, termios.TCSANOW, state)


def _bits(modes: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    for index, names in FLAGS.items():
        for name in names:
            value = modes.get(_opcode(name))
            bit = getattr(termios, name, EXTRA_BITS.get(name))
            if value is not None and bit is not None:
                yield index, bit, value


def _opcode(name: str) -> int:
    opcode: int = getattr(asyncssh, f"PTY_{ASYNCSSH_NAMES.get(name, name)}")
    return opcode


def _character(terminal: int, value: int) -> bytes:
    none = os.fpathconf(terminal, "PC_VDISABLE")
    return bytes([none & 0xFF if value == DISABLED else value & 0xFF])
