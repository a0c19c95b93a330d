"""Inlines a tf.function that is called inside a replica into the replica's program, as XLA does on a TPU."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .hooks import TensorFlow


def install(tensorflow: TensorFlow, strategy: type) -> None:
    """Inline such calls: a mirrored strategy would refuse the optimizer's cross-replica update in them."""
    function = tensorflow.function.Function
    call = function.__call__

    def call_or_inline(self: Any, *args: object, **kwargs: object) -> object:
        if not tensorflow.context.executing_eagerly() and in_replica():
            return inlined(tensorflow, self)(*args, **kwargs)
        return call(self, *args, **kwargs)

    def in_replica() -> bool:
        replica = tensorflow.distribute.get_replica_context()
        return replica is not None and isinstance(replica.strategy, strategy)

    function.__call__ = call_or_inline


def inlined(tensorflow: TensorFlow, function: Any) -> Callable[..., object]:
    """Return what a tf.function does, for the graph of its caller: on a TPU, XLA compiles all of that."""
    body = function.python_function
    if function._autograph:
        status = tensorflow.autograph_status
        enabled = status.ControlStatusCtx(status=status.Status.ENABLED)
        body = tensorflow.autograph.tf_convert(body, enabled)

    def as_declared(*args: object, **kwargs: object) -> object:
        return body(*_converted(tensorflow.tf, function.input_signature, args), **kwargs)

    return as_declared


def _converted(tf: ModuleType, signature: Any, args: tuple[object, ...]) -> tuple[object, ...]:
    """Convert positional arguments as the function's input signature does."""
    declared = dict(enumerate(signature or ()))
    return tuple(
        tf.convert_to_tensor(value, declared[index].dtype)
        if isinstance(declared.get(index), tf.TensorSpec)
        else value
        for index, value in enumerate(args)
    )
