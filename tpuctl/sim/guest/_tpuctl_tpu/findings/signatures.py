"""Reports recompilation: for how many signatures a function with a replica function was traced."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import MutableMapping
from types import FrameType
from typing import Any

from ..hooks import TensorFlow
from .places import Place
from .recorder import Findings

MANY = 3
"""A second signature is ordinary: a last batch, an evaluation at another size."""

_IDENTITY = re.compile(r"\b\d{9,}\b")
"""A distributed iterator's specification has addresses of objects in it."""


class Signatures:
    """Counts the different signatures of each outermost tf.function; a second trace of one is not another."""

    def __init__(self, tensorflow: TensorFlow, findings: Findings) -> None:
        self._function = tensorflow.function.Function
        self._graphs = tensorflow.func_graph.FuncGraph
        self._findings = findings
        self._seen: MutableMapping[object, tuple[set[str], Place]] = weakref.WeakKeyDictionary()
        self._numbers = iter(range(sys.maxsize))
        self._number: MutableMapping[object, int] = weakref.WeakKeyDictionary()

    def count(self, graph: Any) -> None:
        """Note the trace that is under way."""
        function = self._being_traced()
        if function is None:
            return
        while isinstance(getattr(graph, "outer_graph", None), self._graphs):
            graph = graph.outer_graph
        signatures, place = self._seen.setdefault(function, (set(), self._findings.places.here()))
        signatures.add(_IDENTITY.sub("", repr(graph.structured_input_signature)))
        name = getattr(function.python_function, "__name__", "function")
        number = self._number.setdefault(function, next(self._numbers))
        self._findings.traced(number, name, place, len(signatures))
        if len(signatures) >= MANY:
            text = f"{name} was traced for {len(signatures)} signatures: a TPU compiles its program for each"
            self._findings.slow("RECOMPILATION", text, place)

    def _being_traced(self) -> Any:
        """The outermost tf.function on the stack."""
        function = None
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code is self._function._call.__code__:
                function = frame.f_locals["self"]
            frame = frame.f_back
        return function
