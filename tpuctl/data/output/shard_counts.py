"""Chooses the number of shards of a split by size and hosts, and checks a number that the user gives."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tpuctl.data.order.splits import Members
from tpuctl.data.tfrecord.framing import OVERHEAD
from tpuctl.errors import UsageError

MIN_SIZE = 64 << 20
MAX_SIZE = 1 << 30
"""TFDS's bounds for the size of a shard, in bytes (tensorflow_datasets/core/utils/shard_utils.py)."""
DEFAULT_SIZE = 100_000_000
"""TensorFlow's guide on input pipelines: files of about 100 MB."""
_UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


@dataclass(frozen=True)
class ShardCount:
    """How many shards a split gets, and the reason in words for the user."""

    count: int
    why: str


def shard_file(name: str, split: str, index: int, count: int) -> str:
    """Return the file name that TFDS gives a shard."""
    return f"{name}-{split}.tfrecord-{index:05d}-of-{count:05d}"


def framed_size(members: Members) -> int:
    """Return the size in bytes of the TFRecord files that hold all records of a split."""
    return members.size + OVERHEAD * len(members)


def choose_count(records: int, size: int, *, hosts: int, target: int = DEFAULT_SIZE) -> ShardCount:
    """Return the number of shards for `records` of `size` bytes in all that `hosts` hosts will read.

    A multiple of the hosts, near `target` bytes a shard, within TFDS's bounds where that leaves a choice, and
    never more than there are records.
    """
    count = hosts * max(_within_bounds(round(size / (target * hosts)), size, hosts), 1)
    if count <= records:
        return ShardCount(count, _why(count, size, hosts, target))
    if records < hosts:
        return ShardCount(records, f"one record each; some of the {hosts} hosts will read nothing")
    return ShardCount(records // hosts * hosts, f"at most the {records} records, and the same for each host")


def fixed_count(shards: int, records: int, *, hosts: int, split: str) -> ShardCount:
    """Return the number of shards that the user gave; raises UsageError for one that is impossible."""
    if shards < 1:
        raise UsageError(f"A split cannot have {shards} shards.", hint="Give one or more.", shards=shards)
    if shards % hosts:
        raise UsageError(
            f"{shards} shards cannot be shared evenly by {hosts} hosts.",
            hint=f"Give a multiple of {hosts}, such as {ceil(shards / hosts) * hosts}.",
            shards=shards,
            hosts=hosts,
        )
    if shards > records:
        raise UsageError(
            f"The split '{split}' has {records} records, fewer than {shards} shards.",
            hint="Give fewer shards, or run it without --shards.",
            shards=shards,
            split=split,
        )
    return ShardCount(shards, "as requested")


def bounds(records: int, count: int) -> list[int]:
    """Return where each of `count` shards begins, and the end: lengths differ by one record at most."""
    return [records * index // count for index in range(count + 1)]


def _within_bounds(shards_per_host: int, size: int, hosts: int) -> int:
    """Bring the shards of each host within the bounds; the upper bound on a shard's size goes first."""
    fewest, most = ceil(size / (MAX_SIZE * hosts)), size // (MIN_SIZE * hosts)
    return max(min(shards_per_host, most), fewest)


def _why(count: int, size: int, hosts: int, target: int) -> str:
    shard_size = f"{readable_size(size / count)} each"
    if count == 1:
        return f"{readable_size(size)} in one file"
    if count == hosts:
        return f"one for each of the {hosts} hosts, {shard_size}"
    shared = f", a multiple of the {hosts} hosts" if hosts > 1 else ""
    return f"{shard_size}, near the target of {readable_size(target)}{shared}"


def readable_size(size: float) -> str:
    """Return a size in bytes with three digits and its unit: `67.1 MB` (powers of ten)."""
    unit = next((unit for unit in _UNITS if size < 1000 * _UNITS[unit]), "GB")
    return f"{size / _UNITS[unit]:.3g} {unit}"
