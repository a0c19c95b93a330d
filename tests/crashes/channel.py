"""A gRPC channel that calls the simulated Cloud TPU API in this thread: Google's own client, no sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NoReturn

import grpc
from google.protobuf.message import Message

from tpuctl.sim.tpu import grpc_api
from tpuctl.sim.world import World

Codec = Callable[..., object]
Send = Callable[[str, Callable[[], Message]], Message]
"""Delivers a request, by its method's name, and returns its answer; may fail before or after it."""


class WorldChannel(grpc.Channel):
    """Delivers each request by `send`, which calls the world's method, in its thread, or does not."""

    def __init__(self, world: World, run: Callable[..., Message], send: Send) -> None:
        self._handlers = grpc_api.handlers(world)
        self._run = run
        self._send = send

    def unary_unary(  # type: ignore[override]  # a transport passes both codecs
        self, method: str, request_serializer: Codec, response_deserializer: Codec, *_: object, **__: object
    ) -> _Method:
        details = SimpleNamespace(method=method, invocation_metadata=())
        handlers = (generic.service(details) for generic in self._handlers)  # type: ignore[arg-type]
        handler = next(handler for handler in handlers if handler)

        def answer(request: object) -> object:
            message = handler.request_deserializer(request_serializer(request))  # type: ignore[misc,arg-type]

            def deliver() -> Message:
                return self._run(handler.unary_unary(message, _Context()))  # type: ignore[misc,arg-type]

            response = self._send(method.rpartition("/")[2], deliver)
            return response_deserializer(handler.response_serializer(response))  # type: ignore[misc]

        return _Method(answer)

    def _no_streams(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("the Cloud TPU API has no streaming methods")

    unary_stream = stream_unary = stream_stream = _no_streams

    def subscribe(self, *_: object, **__: object) -> None: ...

    def unsubscribe(self, *_: object, **__: object) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> WorldChannel:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Method(grpc.UnaryUnaryMultiCallable):  # type: ignore[type-arg]  # untyped at run time
    """One method of the channel."""

    def __init__(self, answer: Callable[[object], object]) -> None:
        self._answer = answer

    def __call__(self, request: object, *_: object, **__: object) -> object:
        return self._answer(request)

    def with_call(self, request: object, *_: object, **__: object) -> tuple[object, object]:
        return self._answer(request), SimpleNamespace(trailing_metadata=tuple, initial_metadata=tuple)

    def future(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError


class RefusedCall(grpc.RpcError, grpc.Call):  # type: ignore[misc]  # as grpc's own errors are
    """The error of a call, as a client of a real channel gets it."""

    def __init__(self, code: grpc.StatusCode, text: str, metadata: Sequence[tuple[str, bytes]] = ()) -> None:
        super().__init__(text)
        self._code, self._text, self._metadata = code, text, tuple(metadata)

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return self._metadata

    initial_metadata = trailing_metadata

    def result(self) -> NoReturn:
        raise self

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> None: ...

    def cancel(self) -> None: ...

    def add_callback(self, callback: object) -> bool:
        return False


class _Context:
    """The side of a call that the server sees."""

    def peer(self) -> str:
        return "in this thread"

    def invocation_metadata(self) -> None: ...

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        raise RefusedCall(status.code, status.details, status.trailing_metadata)  # type: ignore[attr-defined]
