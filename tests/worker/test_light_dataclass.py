"""The worker's records are dataclasses, as far as anybody asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tpuctl.worker import light_dataclass


def made_by(decorator: Callable[..., Any]) -> Any:
    """Return a class with required and optional fields, and a property."""

    class Point:
        x: int
        names: Sequence[str]
        y: int = 2
        note: str | None = None

        @property
        def total(self) -> int:
            return self.x + self.y

    Point.__qualname__ = "Point"
    return decorator(frozen=True)(Point)


Light, Real = made_by(light_dataclass.dataclass), made_by(dataclasses.dataclass)


@pytest.mark.parametrize(
    ("values", "named"),
    [((1, ("a",)), {}), ((1,), {"names": ()}), ((), {"names": (), "x": 3, "y": 4}), ((1, (), 5, "n"), {})],
)
def test_one_is_as_the_standard_librarys(values: Sequence[object], named: dict[str, object]) -> None:
    light, real = Light(*values, **named), Real(*values, **named)
    assert (repr(light), hash(light), light.total) == (repr(real), hash(real), real.total)
    assert list(light_dataclass.asdict(light).items()) == list(dataclasses.asdict(real).items())
    assert light == Light(*values, **named) != dataclasses.replace(light, y=9)
    assert light != real
    assert light_dataclass.replace(light, y=9) == dataclasses.replace(light, y=9)
    assert dataclasses.asdict(light) == dataclasses.asdict(real)


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1,), {}), ((1, ()), {"z": 1}), ((1, ()), {"x": 1}), ((1, (), 2, "n", 3), {})],
)
def test_other_fields_than_it_has_are_an_error(values: Sequence[object], named: dict[str, object]) -> None:
    for kind in (Light, Real):
        with pytest.raises(TypeError):
            kind(*values, **named)
    with pytest.raises(TypeError, match="z"):
        light_dataclass.replace(Light(1, ()), z=1)


def test_nothing_changes_it() -> None:
    point = Light(1, ())
    with pytest.raises(AttributeError, match="'y'"):
        point.y = 3
    with pytest.raises(AttributeError, match="'x'"):
        del point.x
    assert point == Light(1, ())


def test_msgspec_reads_and_writes_it() -> None:
    assert msgspec.convert({"x": 1, "names": ["a"], "other": 2}, Light) == Light(1, ["a"])
    assert msgspec.json.encode(Light(1, ())) == b'{"x":1,"names":[],"y":2,"note":null}'
    for wrong in ({"x": 1}, {"x": "1", "names": []}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Light)
