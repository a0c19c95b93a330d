"""Compiles functions with `jit_compile` by XLA for CPUs: for one device, without variables of others."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .hooks import TensorFlow


class _RunsReplicas(Exception):
    """Ends the tracing of a function that was to be compiled whole, but runs replicas on other devices."""


def install(tensorflow: TensorFlow, strategy: Any) -> None:
    """Trace a function that runs replicas without `jit_compile`: on a TPU only the replicas are compiled."""
    function = tensorflow.function.Function
    call, run = function.__call__, strategy.run
    compiling = threading.local()
    uncompiled: weakref.WeakKeyDictionary[object, Any] = weakref.WeakKeyDictionary()

    def call_compiled_or_not(self: Any, *args: object, **kwargs: object) -> object:
        if not self._jit_compile or getattr(compiling, "function", None):
            return call(uncompiled.get(self, self), *args, **kwargs)
        compiling.function = self
        try:
            return call(self, *args, **kwargs)
        except _RunsReplicas:
            uncompiled[self] = self._clone(None)
            uncompiled[self]._jit_compile = False
        finally:
            compiling.function = None
        return call(uncompiled[self], *args, **kwargs)

    def run_unless_compiling(self: object, *args: object, **kwargs: object) -> object:
        if getattr(compiling, "function", None) and not tensorflow.context.executing_eagerly():
            raise _RunsReplicas
        return run(self, *args, **kwargs)

    function.__call__, strategy.run = call_compiled_or_not, run_unless_compiling
