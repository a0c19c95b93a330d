"""The same work on many workers: one result per worker, never only the first exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from tpuctl.errors import TpuctlError

Item = TypeVar("Item")
Out = TypeVar("Out")

WIDTH = 32


@dataclass(frozen=True)
class Result(Generic[Item, Out]):
    """What came of one item: a value or an error."""

    item: Item
    value: Out | None = None
    error: TpuctlError | None = None


def fanout(work: Callable[[Item], Out], items: Iterable[Item], width: int = WIDTH) -> list[Result[Item, Out]]:
    """Call `work` on every item, at most `width` at once, and return the results in the items' order.

    Only TpuctlErrors become results: anything else is a bug and is raised.
    """

    def one(item: Item) -> Result[Item, Out]:
        try:
            return Result(item, value=work(item))
        except TpuctlError as error:
            return Result(item, error=error)

    listed = list(items)
    if width == 1 or len(listed) <= 1:
        return [one(item) for item in listed]
    with ThreadPoolExecutor(min(width, len(listed)), thread_name_prefix="fanout") as pool:
        return list(pool.map(one, listed))


def values(results: Iterable[Result[Item, Out]]) -> list[Out]:
    """Return every value; raises the first error with a count of the others in its hint."""
    listed = list(results)
    failed = [one for one in listed if one.error]
    if failed and failed[0].error:
        first = failed[0].error
        if len(failed) > 1:
            first.hint = f"{len(failed)} of {len(listed)} failed. {first.hint}".strip()
        raise first
    return [one.value for one in listed]  # type: ignore[misc]  # without an error there is a value
