"""The operations of a program, with those of its functions.

The graph is one of this file: TensorFlow, which makes real ones, takes ten seconds to load.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tpuctl.sim.guest._tpuctl_tpu.findings.replicas import ends_in_checks, walk
from tpuctl.sim.guest._tpuctl_tpu.tf_objects import Graph, Operation


@dataclass
class Op:
    """An operation: its name, the functions it calls, the operations that take what it yields."""

    name: str
    calls: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    """Functions of one attribute, as those of a case."""
    consumers: list[Op] = field(default_factory=list)
    type: str = "Add"

    @property
    def op_def(self) -> Any:
        attributes = [SimpleNamespace(name=name, type="func") for name in self.calls]
        listed = [SimpleNamespace(name="branches", type="list(func)")] if self.branches else []
        return SimpleNamespace(attr=[SimpleNamespace(name="T", type="type"), *attributes, *listed])

    @property
    def node_def(self) -> Any:
        names = {name: _value(name, ()) for name in self.calls}
        return SimpleNamespace(attr={**names, "branches": _value("", self.branches)})

    @property
    def outputs(self) -> list[Any]:
        return [SimpleNamespace(consumers=lambda: self.consumers)] if self.consumers else []


class Ops:
    """A graph: its operations, the graphs of its functions by their names, and the graph around it."""

    def __init__(self, operations: list[Op], functions: dict[str, Ops | None] | None = None) -> None:
        self._operations = operations
        self._functions = functions or {}
        self.outer_graph: Ops | None = None
        for inner in self._functions.values():
            if inner is not None:
                inner.outer_graph = self

    def get_operations(self) -> list[Op]:
        return self._operations

    def _get_function(self, name: str) -> Any:
        graph = self._functions.get(name)
        without_source = SimpleNamespace()
        return SimpleNamespace(graph=graph) if graph else without_source if name in self._functions else None


def _value(name: str, listed: tuple[str, ...]) -> Any:
    functions = [SimpleNamespace(name=function) for function in listed]
    return SimpleNamespace(func=SimpleNamespace(name=name), list=SimpleNamespace(func=functions))


def names(graph: Ops) -> list[str]:
    walked = walk(cast(Graph, graph), cast("list[Operation]", graph.get_operations()))
    return [operation.name for operation in walked]


def test_the_operations_of_functions_follow_those_that_call_them() -> None:
    inner = Ops([Op("deep")])
    functions: dict[str, Ops | None] = {
        "f": Ops([Op("in f", calls=("g",))], {"g": inner}),
        "then": Ops([Op("yes")]),
        "else": Ops([Op("no")]),
    }
    graph = Ops([Op("first"), Op("call", calls=("f",)), Op("case", branches=("then", "else"))], functions)
    assert names(graph) == ["first", "call", "case", "in f", "yes", "no", "deep"]


def test_a_function_that_several_operations_call_counts_once() -> None:
    graph = Ops([Op("one", calls=("f",)), Op("two", calls=("f",))], {"f": Ops([Op("in f")])})
    assert names(graph) == ["one", "two", "in f"]


def test_a_function_that_calls_itself_ends() -> None:
    graph = Ops([Op("call", calls=("f",))], {"f": Ops([Op("in f", calls=("f",))])})
    assert names(graph) == ["call", "in f"]


def test_a_function_calls_those_around_it() -> None:
    functions: dict[str, Ops | None] = {"f": Ops([Op("in f", calls=("g",))]), "g": Ops([Op("in g")])}
    assert names(Ops([Op("call", calls=("f",))], functions)) == ["call", "in f", "in g"]


def test_a_function_without_source_or_from_nowhere_adds_nothing() -> None:
    graph = Ops([Op("one", calls=("of a file",)), Op("two", calls=("nowhere",))], {"of a file": None})
    assert names(graph) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("add", True),
        ("replica_1/add", False),
        ("model/replica_12/add", False),
        ("model/replica_7", False),
        ("replica_1", False),
        ("replica_/add", True),
        ("my_replica_1/add", True),
        ("replica_1st/add", True),
    ],
)
def test_the_operations_of_other_replicas_repeat_the_first(name: str, is_there: bool) -> None:
    assert names(Ops([Op(name)])) == ([name] if is_there else [])


CHECK = Op("check", type="Assert")


@pytest.mark.parametrize(
    ("operation", "ends"),
    [
        (Op("unused"), False),
        (Op("checked", consumers=[CHECK]), True),
        (Op("used too", consumers=[CHECK, Op("sum")]), False),
        (Op("compared", consumers=[Op("equal", consumers=[CHECK])]), True),
        (Op("compared and used", consumers=[Op("equal", consumers=[CHECK, Op("sum")])]), False),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else None,
)
def test_what_only_checks_use_ends_in_them(operation: Op, ends: bool) -> None:
    assert ends_in_checks(cast(Operation, operation)) is ends
