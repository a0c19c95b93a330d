"""Describes the public names of tpuctl as text: `python -m tests.client.public_api` records them anew."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path

import tpuctl
import tpuctl.errors
import tpuctl.testing

RECORD = Path(__file__).parent / "public_api.txt"
MADE_BY_CALLS = ("Node", "Run", "Dataset", "NodePlan", "DownPlan", "RunPlan", "Listing")
"""Classes whose objects calls return: how they are made is private."""
BASES = ("TpuctlError", "StateError", "Exception", "tuple")
"""Classes besides those of tpuctl that a public one is said to be a kind of."""


def description() -> str:
    """Return every public name with its signature, its fields or its members, one a line."""
    modules = (tpuctl, tpuctl.errors, tpuctl.testing)
    return "".join(f"{line}\n" for module in modules for line in _module(module.__name__, module.__all__))


def _module(module: str, names: Iterable[str]) -> Iterator[str]:
    for name in sorted(names):
        yield from _described(f"{module}.{name}", getattr(import_module(module), name))


def _described(name: str, value: object) -> Iterator[str]:
    if typing.is_typeddict(value):
        assert isinstance(value, type)
        yield f"{name}: options"
        yield from (f"{name}[{key}]: {_text(kind)}" for key, kind in value.__annotations__.items())
    elif inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.ismodule(value) or isinstance(value, str):
        yield name
    else:
        yield f"{name} = {value}"


def _class(name: str, value: type) -> Iterator[str]:
    is_record = dataclasses.is_dataclass(value)
    bases = [base.__name__ for base in value.__bases__ if base.__name__ in (*tpuctl.__all__, *BASES)]
    yield f"{name}: {'record' if is_record else 'class'}" + (f" ({', '.join(bases)})" if bases else "")
    is_made_by_users = name.rpartition(".")[2] not in MADE_BY_CALLS
    if "__init__" in vars(value) and is_made_by_users and not is_record:
        yield f"{name}{_signature(vars(value)['__init__'], without=1)}"
    for field, kind in vars(value).get("__annotations__", {}).items():
        if not field.startswith("_"):
            yield f"{name}.{field}: {_text(kind)}"
    for member, content in sorted(_members(value).items()):
        yield from _member(f"{name}.{member}", content)


def _members(value: type) -> dict[str, object]:
    """Return the public members of a class, with those of its private bases."""
    members: dict[str, object] = {}
    for base in reversed(value.__mro__):
        is_public = base is not value and base.__name__ in (*tpuctl.__all__, *BASES)
        if base.__module__.startswith("tpuctl") and not is_public:
            members |= {name: content for name, content in vars(base).items() if not name.startswith("_")}
    return members


def _member(name: str, content: object) -> Iterator[str]:
    if isinstance(content, property):
        assert content.fget
        yield f"{name}: {_text(inspect.signature(content.fget).return_annotation)}"
    elif isinstance(content, (classmethod, staticmethod)):
        yield f"{name}{_signature(content.__func__, without=1)}"
    elif inspect.isfunction(content):
        yield f"{name}{_signature(content, without=1)}"


def _signature(function: Callable[..., object], without: int = 0) -> str:
    """Return the signature of a function, without its first parameters."""
    signature, words = inspect.signature(function), list[str]()
    for parameter in list(signature.parameters.values())[without:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
            words.append("*")
        words.append(_parameter(parameter))
    result = signature.return_annotation
    return f"({', '.join(words)}){'' if result is signature.empty else f' -> {_text(result)}'}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}: {_text(parameter.annotation)}{default}"


def _text(annotation: object) -> str:
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


if __name__ == "__main__":
    RECORD.write_text(description())
