"""A connection that comes while a host's SSH server closes or begins to refuse is closed, too."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncssh
import pytest

from tpuctl.sim.hosts.ssh import SshServer


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("turns", range(8))
def test_a_connection_that_was_just_accepted_is_closed_with_the_server(
    tmp_path: Path, turns: int, refuses: bool
) -> None:
    """After so many turns of the event loop it waits, is accepted, or is made."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    host: Any = SimpleNamespace(view=tmp_path)
    gc.collect()  # what earlier tests have left is not looked at here
    with (
        warnings.catch_warnings(record=True) as seen,
        closing(asyncio.new_event_loop()) as loop,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):
        warnings.simplefilter("always")

        async def connect_and_close() -> socket.socket:
            server = SshServer(host)
            await server.open(listener, key)
            client = socket.create_connection(listener.getsockname())
            for _ in range(turns):
                await asyncio.sleep(0)
            if refuses:
                await server.refuse()
            await server.close()
            return client

        loop.run_until_complete(connect_and_close()).close()
        loop.close()
        gc.collect()
    assert [str(warning.message) for warning in seen if issubclass(warning.category, ResourceWarning)] == []
