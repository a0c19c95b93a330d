"""Pipes and terminals of programs, read and written while the loop goes on."""

from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.sim.hosts.programs.processes import read, readable, writable, write
from tpuctl.sim.hosts.programs.programs import Command, Programs

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
