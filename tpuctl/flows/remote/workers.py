"""Reads which workers of a node are meant: `all`, `0`, `1,3`, `0-7`, and `NAME@3`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.errors import NotFoundError, UsageError
from tpuctl.nodes import Node

NUMBERS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


@dataclass(frozen=True)
class WorkerSet:
    """Workers as a user names them; `ranges` are first and last numbers, none of them for all workers."""

    ranges: tuple[tuple[int, int], ...] = ()

    def select(self, node: Node) -> tuple[int, ...]:
        """Return these workers of a node, ascending; raises NotFoundError for one that it does not have."""
        count = len(node.addresses)
        missing = [max(first, count) for first, last in self.ranges if last >= count]
        if missing:
            numbers = f"0 to {count - 1}" if count > 1 else "0 only"
            raise NotFoundError(
                f"'{node.name}' has no worker {missing[0]}: its workers are {numbers}.",
                hint=f"See them: tpuctl describe {node.name}",
                worker=missing[0],
                workers=count,
            )
        ranges = self.ranges or ((0, count - 1),)
        return tuple(sorted({worker for first, last in ranges for worker in range(first, last + 1)}))


ALL_WORKERS = WorkerSet()


def only_worker(number: int) -> WorkerSet:
    """Return the set of one worker."""
    return WorkerSet(((number, number),))


def parse_workers(text: str) -> WorkerSet:
    """Return the workers that `all`, `3`, `1,3` or `0-7` means; raises UsageError for any other text."""
    if text.strip() == "all":
        return ALL_WORKERS
    matches = [NUMBERS.fullmatch(part.strip()) for part in text.split(",")]
    ranges = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    if len(ranges) < len(matches) or any(first > last for first, last in ranges):
        raise UsageError(
            f"'{text}' names no workers.", hint="Write all, a number, or numbers and ranges: 0-3,7"
        )
    return WorkerSet(tuple(ranges))


@dataclass(frozen=True)
class HostName:
    """`NAME`, or `NAME@3` for one worker; an empty name means the user's only node."""

    name: str
    workers: WorkerSet | None = None
    """None where the text names no worker."""


def parse_host_name(text: str) -> HostName:
    """Return what `NAME`, `NAME@3` or `NAME@0-7` means; raises UsageError for an empty half."""
    name, separator, workers = text.partition("@")
    if not name or (separator and not workers):
        raise UsageError(
            f"'{text}' names no host.", hint="Write NAME, or NAME@3 for one worker; 'tpuctl ls' shows names."
        )
    return HostName(name, parse_workers(workers) if separator else None)


def worker_of_entry(name: str, host: str, zone: str) -> WorkerSet:
    """Return the worker that a name in an entry of `ssh-config` means, such as `NAME.w3.tpuctl`.

    `zone` is that of the entry, empty for none.
    """
    base = f"{name}.{zone}"
    name = base if zone and host.startswith(base) else name
    number = host.removesuffix(".tpuctl").removesuffix(".sim").removeprefix(name).removeprefix(".w")
    return parse_workers(number or "0")


def chosen_workers(host: HostName, option: str | None, default: WorkerSet) -> WorkerSet:
    """Return the workers that `NAME@3` or `--worker 3` names, else `default`; raises UsageError for both."""
    if option is None:
        return host.workers or default
    if host.workers is not None:
        raise UsageError("Workers are named twice.", hint=f"Leave out @... or --worker {option}.")
    return parse_workers(option)
