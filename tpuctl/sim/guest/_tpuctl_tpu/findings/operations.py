"""Lists the operations of a replica's program, with those of its functions, loops and branches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..tf_objects import Graph, Operation

_OTHER_REPLICA = re.compile(r"(^|/)replica_\d+(/|$)")
_FUNCTIONS = ("func", "list(func)")


def walk(graph: Graph | None, operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield the first replica's operations and those of the functions they name; the others repeat them."""
    visited: set[str] = set()
    waiting = [(graph, operation) for operation in operations]
    while waiting:
        graph, operation = waiting.pop(0)
        if _OTHER_REPLICA.search(operation.name):
            continue
        yield operation
        for name in called(operation):
            inner = _graph_of(graph, name)
            if name not in visited and inner is not None:
                visited.add(name)
                waiting += [(inner, called_operation) for called_operation in inner.get_operations()]


def ends_in_checks(operation: Operation) -> bool:
    """Whether all that an operation yields goes into Assert, which XLA drops with what leads to it."""
    consumers = [consumer for output in operation.outputs for consumer in output.consumers()]
    return bool(consumers) and all(
        consumer.type == "Assert" or ends_in_checks(consumer) for consumer in consumers
    )


def called(operation: Operation) -> Iterator[str]:
    """Yield the names of the functions that an operation calls, loops over or branches to."""
    for attribute in operation.op_def.attr:
        if attribute.type in _FUNCTIONS:
            value = operation.node_def.attr[attribute.name]
            yield from (
                [value.func.name] if value.func.name else [function.name for function in value.list.func]
            )


def _graph_of(graph: Graph | None, name: str) -> Graph | None:
    """The graph of a function that `graph` or one around it has; None for one without Python source."""
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None
