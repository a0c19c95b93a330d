"""A tf.function called inside a replica becomes part of the replica's program, as XLA makes it on a TPU."""

from __future__ import annotations

from typing import Any


def install(tensorflow: Any, strategy: type) -> None:
    """Inline such calls: a mirrored strategy would refuse the optimizer's cross-replica update in them."""
    function = tensorflow.function.Function
    call = function.__call__

    def call_or_inline(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not tensorflow.context.executing_eagerly() and not self._jit_compile and in_replica():
            return _inlined(tensorflow, self)(*_as_declared(tensorflow.tf, self, args), **kwargs)
        return call(self, *args, **kwargs)

    def in_replica() -> bool:
        replica = tensorflow.distribute.get_replica_context()
        return replica is not None and isinstance(replica.strategy, strategy)

    function.__call__ = call_or_inline


def _inlined(tensorflow: Any, function: Any) -> Any:
    if not function._autograph:
        return function.python_function
    status = tensorflow.autograph_status.control_status_ctx()
    return tensorflow.autograph.tf_convert(function.python_function, status)


def _as_declared(tf: Any, function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert positional arguments as the function's input signature does."""
    declared = function.input_signature or ()
    return tuple(
        tf.convert_to_tensor(value, declared[index].dtype)
        if index < len(declared) and isinstance(declared[index], tf.TensorSpec)
        else value
        for index, value in enumerate(args)
    )
