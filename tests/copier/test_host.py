"""The end of a copy on a host: its streams."""

from __future__ import annotations

import fcntl
import os
import socket
import sys

import pytest

from tpuctl.copier import host


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of other sizes")
def test_a_pipe_of_the_ssh_server_holds_more() -> None:
    ends = os.pipe()
    try:
        before = fcntl.fcntl(ends[0], fcntl.F_GETPIPE_SZ)
        host._widen(ends[0])
        assert fcntl.fcntl(ends[1], fcntl.F_GETPIPE_SZ) >= max(before, host.PIPE)
    finally:
        for end in ends:
            os.close(end)


def test_what_is_no_pipe_stays_as_it_is() -> None:
    with socket.socket() as stream:
        host._widen(stream.fileno())
