"""Stands before every gRPC call: who is at the other end of its connection?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from tpuctl.sim.access.guard import FOREIGN, Guard
from tpuctl.sim.access.peers import Address, plain

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class GrpcGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Refuses the calls that `guard` does not admit; calls `on_call` before each of the others.

    `server` is the address that the gRPC server listens on. gRPC shows a connection only to its calls, so the
    system is asked at each one. Web pages cannot speak gRPC: their fetch uses HTTP/2 under TLS alone.
    """

    def __init__(self, guard: Guard, server: Callable[[], Address], on_call: Callable[[], None]) -> None:
        self._guard = guard
        self._server = server
        self._on_call = on_call

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the call's handler behind the guard; raises TypeError for a streaming one, which is not."""
        handler: Handler | None = await continuation(handler_call_details)  # None: an unknown method
        if handler is None:
            return handler  # type: ignore[return-value]  # the stubs know no unknown methods
        answer = handler.unary_unary
        if answer is None:
            raise TypeError(f"{handler_call_details.method} streams, and would have no guard")

        async def guarded(request: Any, context: Any) -> Any:
            if not self._admits(context):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"The call is refused: {FOREIGN}.")
            self._on_call()
            return await answer(request, context)

        return grpc.unary_unary_rpc_method_handler(
            guarded, handler.request_deserializer, handler.response_serializer
        )

    def _admits(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        client = _address(context.peer())
        if client is not None and self._guard.trusts_address(client, self._server()):
            return True
        metadata = dict(context.invocation_metadata() or ())
        return self._guard.secret.allows(str(metadata.get("authorization", "")))


def _address(peer: str) -> Address | None:
    """Read gRPC's name of the other end: `ipv4:127.0.0.1:1234` or, escaped, `ipv6:[::1]:1234`."""
    _, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    try:
        return plain((host.strip("[]"), int(port)))
    except ValueError:
        return None
