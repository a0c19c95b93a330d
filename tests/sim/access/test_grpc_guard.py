"""Which gRPC calls are admitted: those of this user's processes, and those with the secret."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.sim.access.grpc_call import Call
from tpuctl.sim.access import Address, Guard, Secret
from tpuctl.sim.tpu_servers import GrpcGuard

GRPC_SERVER = ("127.0.0.1", 80)
OWNERS = {("127.0.0.1", 5000): os.geteuid(), ("::1", 5000): os.geteuid(), ("127.0.0.1", 6000): 65_534}


class Aborted(Exception):
    """A call was ended with a status."""


class Context(Call):
    """A call that can be ended."""

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        raise Aborted(code, message)


async def echo(request: Any, context: Any) -> Any:
    return f"answer to {request}"


class Door:
    """A guarded method, and how often a call was admitted to it."""

    def __init__(self, folder: Path) -> None:
        self.secret = Secret(folder / "secret")
        self.calls = 0
        self._guard = GrpcGuard(Guard(self.secret, self._owner), lambda: GRPC_SERVER, self._note)

    def _owner(self, client: Address, server: Address) -> int | None:
        assert server == GRPC_SERVER
        return OWNERS.get(client)

    def _note(self) -> None:
        self.calls += 1

    def intercept(self, handler: Any) -> Any:
        async def find(_: object) -> Any:
            return handler

        details: Any = SimpleNamespace(method="/tpu/GetNode")
        return asyncio.run(self._guard.intercept_service(find, details))

    def call(self, context: Context) -> Any:
        handler = self.intercept(grpc.unary_unary_rpc_method_handler(echo))
        return asyncio.run(handler.unary_unary("hello", context))


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.mark.parametrize(
    "peer", ["ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000", "ipv6:[::ffff:127.0.0.1]:5000"]
)
def test_a_call_of_this_user_is_answered(door: Door, peer: str) -> None:
    assert (door.call(Context(peer)), door.calls) == ("answer to hello", 1)


@pytest.mark.parametrize(
    "peer", ["ipv4:127.0.0.1:6000", "ipv4:127.0.0.1:7000", "unix:/tmp/socket", "ipv4:x:1", ""]
)
def test_another_call_needs_the_secret(door: Door, peer: str) -> None:
    for metadata in ({}, {"authorization": "Bearer wrong"}, {"other": f"Bearer {door.secret.text}"}):
        with pytest.raises(Aborted) as aborted:
            door.call(Context(peer, **metadata))
        assert aborted.value.args == (
            grpc.StatusCode.PERMISSION_DENIED,
            "The call is refused: the simulator is for the user who started it alone.",
        )
    assert door.calls == 0
    context = Context(peer, authorization=f"Bearer {door.secret.text}")
    assert (door.call(context), door.calls) == ("answer to hello", 1)


def test_a_method_keeps_its_messages(door: Door) -> None:
    handler = door.intercept(grpc.unary_unary_rpc_method_handler(echo, bytes.decode, str.encode))
    assert (handler.request_deserializer, handler.response_serializer) == (bytes.decode, str.encode)


def test_an_unknown_method_stays_unknown_and_a_stream_is_none(door: Door) -> None:
    assert door.intercept(None) is None
    with pytest.raises(TypeError, match="GetNode streams, and would have no guard"):
        door.intercept(grpc.unary_stream_rpc_method_handler(echo))
