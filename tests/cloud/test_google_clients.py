"""Google's clients, as this program builds them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.cloud.google_clients import blocked

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
CLIENTS = """
import sys
from tpuctl.cloud import google_clients
google_clients.local_tpu_client("127.0.0.1:1").transport.close()
google_clients.storage_client("p", google_clients.anonymous_credentials(), "http://127.0.0.1:1")
import tpuctl.cloud.ssh, tpuctl.cloud.storage
unused = {"fabric", "invoke", "aiohttp", "opentelemetry", "chardet", "charset_normalizer"}
print(sorted(unused & set(sys.modules)), file=sys.stdout)
"""


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


def test_an_import_inside_the_block_fails_and_later_ones_do_not() -> None:
    sys.modules.pop("this_is_no_module", None)
    with blocked("this_is_no_module", "json"):
        assert sys.modules["this_is_no_module"] is None
        assert sys.modules["json"] is not None, "it was imported before"
    assert "this_is_no_module" not in sys.modules


def test_it_ends_with_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(ImportError), blocked("colorsys"):
        import colorsys
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)


def test_the_clients_of_submit_import_no_half_that_they_never_use() -> None:
    """In a process of its own: other tests import these."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENTS], capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")
