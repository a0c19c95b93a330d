"""Reports recompilation: for how many signatures a function with a replica function was traced."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from types import FrameType
from typing import Any

from ..hooks import TensorFlow
from .places import Place
from .recorder import Findings

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
MANY = 3
"""A second signature is ordinary: a last batch, an evaluation at another size."""
LONGEST = 160
"""Characters of a signature in a message."""


class Signatures:
    """Counts the different signatures of each outermost tf.function; a second trace of one is not another."""

    def __init__(self, tensorflow: TensorFlow, findings: Findings) -> None:
        self._function = tensorflow.function.Function
        self._graphs = tensorflow.func_graph.FuncGraph
        self._findings = findings
        self._texts = SignatureTexts(tensorflow)
        self._seen: MutableMapping[object, tuple[dict[str, None], Place]] = weakref.WeakKeyDictionary()
        self._numbers = iter(range(sys.maxsize))
        self._number: MutableMapping[object, int] = weakref.WeakKeyDictionary()

    def count(self, graph: Any) -> None:
        """Note the trace that is under way."""
        call = self._being_traced()
        if call is None:
            return
        function = call["self"]
        while isinstance(getattr(graph, "outer_graph", None), self._graphs):
            graph = graph.outer_graph
        signatures, place = self._seen.setdefault(function, ({}, self._findings.places.here()))
        text = self._texts.of(graph.structured_input_signature, (call["args"], call["kwds"]))
        signatures[text] = None
        name = getattr(function.python_function, "__name__", "function")
        number = self._number.setdefault(function, next(self._numbers))
        self._findings.traced(number, name, place, len(signatures))
        if len(signatures) >= MANY:
            listed = "; ".join(_shortened(text) for text in signatures)
            number_of = f"{name} was traced for {len(signatures)} signatures"
            text = f"{number_of}, and a TPU compiles its program for each: {listed}"
            self._findings.slow("RECOMPILATION", text, place)

    def _being_traced(self) -> Mapping[str, Any] | None:
        """Return the variables of the outermost tf.function's call on the stack."""
        call: Mapping[str, Any] | None = None
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code is self._function._call.__code__:
                call = frame.f_locals
            frame = frame.f_back
        return call


class SignatureTexts:
    """The text of each signature: equal for two traces exactly where a TPU gets the same inputs."""

    def __init__(self, tensorflow: TensorFlow) -> None:
        tf = tensorflow.tf
        self._flatten = tf.nest.flatten
        self._unknown = tensorflow.func_graph.UnknownArgument
        self._per_replica = tensorflow.values.PerReplicaSpec
        self._inputs = (*_PLAIN, tf.Tensor, tf.Variable, tf.TypeSpec, tensorflow.composite.CompositeTensor)
        self._numbers: dict[int, int] = {}
        self._last = 0

    def of(self, signature: tuple[Any, Any], arguments: tuple[Any, Any]) -> str:
        """Return the text of a structured signature; `arguments` are those of the call that is traced."""
        objects = iter([leaf for leaf in self._flatten(arguments) if self._is_object(leaf)])
        positional, named = signature
        if _wraps_arguments(positional) and not named:
            positional, named = positional
        texts = [self._text(value, objects) for value in positional]
        texts += [f"{name}={self._text(value, objects)}" for name, value in named.items()]
        return f"({', '.join(texts)})"

    def _text(self, value: Any, objects: Iterator[Any]) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key}: {self._text(value[key], objects)}" for key in value) + "}"
        if isinstance(value, (tuple, list)):
            return "(" + ", ".join(self._text(item, objects) for item in value) + ")"
        if isinstance(value, self._unknown):
            return self._object(next(objects, None))
        if isinstance(value, self._per_replica):
            return f"{self._replicas(value)} on each replica"
        elements = getattr(value, "_element_spec", None)  # a distributed iterator's
        if elements is not None:
            return f"iterator of {self._text(elements, objects)}"
        return _leaf(value)

    def _replicas(self, value: Any) -> str:
        different = dict.fromkeys(self._text(spec, iter(())) for spec in value._value_specs)
        return " or ".join(different)

    def _is_object(self, leaf: object) -> bool:
        return not isinstance(leaf, self._inputs) and not hasattr(leaf, "__array__")

    def _object(self, value: object) -> str:
        """Return its type, with a number for each object: TensorFlow traces again for another one."""
        name = getattr(value, "__name__", "") or f"{type(value).__name__} object"
        if id(value) not in self._numbers:
            try:
                weakref.finalize(value, self._numbers.pop, id(value)).atexit = False
            except TypeError:
                return name
            self._last += 1
            self._numbers[id(value)] = self._last
        return f"{name} #{self._numbers[id(value)]}"


def _shortened(text: str) -> str:
    """Return a text of at most LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _leaf(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return repr(value)
    return f"{dtype.name}{list(shape) if shape.rank is not None else '[...]'}"


def _wraps_arguments(positional: tuple[Any, ...]) -> bool:
    """Whether these are positional and named arguments: TensorFlow calls so what has made variables."""
    return len(positional) == 2 and isinstance(positional[0], tuple) and isinstance(positional[1], dict)
