"""Types the parts of TensorFlow's objects that the emulation reads; TensorFlow exports no types for them.

What stays `Any` elsewhere in this package: TensorFlow's classes that are replaced or subclassed, protobuf
messages of its graphs, and arguments of users' functions that are looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Shape(Protocol):
    """A TensorShape."""

    rank: int | None

    def as_list(self) -> list[int | None]: ...

    def __getitem__(self, dimension: int) -> int | None: ...


class DType(Protocol):
    """A type of elements."""

    name: str


class Tensor(Protocol):
    """A tensor, eager or of a graph; only the latter has a name and a graph."""

    name: str
    graph: Any

    dtype: DType
    shape: Shape

    def consumers(self) -> Sequence[Operation]: ...


class Frame(Protocol):
    """A line of the stack in TensorFlow's view, which undoes AutoGraph's rewriting."""

    filename: str
    lineno: int


class Operation(Protocol):
    """An operation of a graph."""

    name: str
    type: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    traceback: Iterable[Frame] | None
    op_def: Any
    node_def: Any


class Graph(Protocol):
    """A graph, with the functions that its operations call."""

    def get_operations(self) -> list[Operation]: ...

    def _get_function(self, name: str) -> object: ...
