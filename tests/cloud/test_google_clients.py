"""Google's clients, as this program builds them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.running_simulator import RunningSimulator

HANDSHAKE = """
import sys
from tpuctl.cloud.google_clients import local_tpu_client
client = local_tpu_client(sys.argv[1])
import grpc
with grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials()) as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=60)
    except grpc.RpcError as error:
        print(error.code().name)
client.transport.close()
"""
"""TLS to a server that speaks none: gRPC logs an error of its own."""


@pytest.mark.parametrize(("verbosity", "is_silent"), [(None, True), ("INFO", False)])
def test_grpc_logs_only_for_users_who_ask_for_it(
    simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch, verbosity: str | None, is_silent: bool
) -> None:
    if verbosity:
        monkeypatch.setenv("GRPC_VERBOSITY", verbosity)
    else:
        monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    command = [sys.executable, "-c", HANDSHAKE, simulator.simulator.endpoints["tpu_grpc"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "UNAVAILABLE\n"
    assert (done.stderr == "") is is_silent, done.stderr
