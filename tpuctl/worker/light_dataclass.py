"""Frozen dataclasses that a host makes without `dataclasses`, whose import takes as long as Python's start.

Who asks for their fields as the standard library has them, as msgspec does on the laptop, gets them.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Type, TypeVar

T = TypeVar("T")
NAME = "__dataclass_fields__"


def dataclass(*, frozen: bool) -> Callable[[Type[T]], Type[T]]:
    """Return a decorator as `dataclasses.dataclass(frozen=True)`, for classes without a base."""
    assert frozen

    def decorate(cls: Type[T]) -> Type[T]:
        methods: Dict[str, object] = {
            NAME: _Fields(), "__init__": _init, "__eq__": _eq, "__repr__": _repr, "__hash__": _hash,
            "__setattr__": _refuse, "__delattr__": _refuse,
        }  # fmt: skip
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return decorate


def fields(cls: type) -> List[str]:
    """Return the names of a class's fields, in order."""
    return list(cls.__annotations__)


def asdict(record: object) -> Dict[str, Any]:
    """Return a record's fields by their names, in order; what they hold is not copied."""
    return {name: getattr(record, name) for name in fields(type(record))}


def replace(record: T, **changes: object) -> T:
    """Return a record like another one, with changes."""
    return type(record)(**{**asdict(record), **changes})


class _Fields:
    """Makes the fields of a class as the standard library has them, when somebody asks for them."""

    def __get__(self, record: object, cls: type) -> object:
        import dataclasses  # noqa: PLC0415  slow, and no host asks

        names = fields(cls)
        content = {name: vars(cls)[name] for name in names if name in vars(cls)}
        pattern = type(cls.__name__, (), {**content, "__annotations__": cls.__annotations__})
        made: object = getattr(dataclasses.dataclass(frozen=True)(pattern), NAME)
        setattr(cls, NAME, made)
        return made


def _init(self: object, *values: object, **named: object) -> None:
    names = fields(type(self))
    given = dict(zip(names, values))  # noqa: B905  `strict` came after Python 3.8
    unknown = set(named) - set(names) | set(named) & set(given)
    if unknown or len(values) > len(names):
        raise TypeError("unknown or twice: %s" % ", ".join(sorted(unknown) or ["one of too many values"]))
    given.update(named)
    missing = [name for name in names if name not in given and not hasattr(type(self), name)]
    if missing:
        raise TypeError("missing: %s" % ", ".join(missing))
    for name in names:  # also those with their defaults: msgspec writes what an object holds
        vars(self)[name] = given[name] if name in given else getattr(type(self), name)


def _eq(self: object, other: object) -> bool:
    return asdict(self) == asdict(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(tuple(asdict(self).values()))


def _repr(self: object) -> str:
    values = ", ".join("%s=%r" % item for item in asdict(self).items())
    return "%s(%s)" % (type(self).__name__, values)


def _refuse(self: object, name: str, *_: object) -> None:
    raise AttributeError("cannot change field %r" % name)
