"""The options that `data plan` and `data upload` share, and the arguments of `plan.plan` they become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import click

from tpuctl import accelerators
from tpuctl.cli.datasets.tokens import TOKEN_OPTIONS, tokens
from tpuctl.cli.session import Command
from tpuctl.data.options import Options
from tpuctl.errors import UsageError

AT_LEAST_ONE = click.IntRange(min=1)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

SOURCE_OPTIONS = (
    click.argument("name"),
    click.argument("source", type=click.Path(path_type=Path)),
    click.option("--version", default="1.0.0", show_default=True, help="Version of the dataset."),
    click.option("--split", help="Shares of the splits, for a source without its own: train=0.8,test=0.2"),
    click.option(
        "--for", "accelerator", help="TPU that will read it, such as v3-32: as many shards for each host."
    ),
    click.option("--hosts", type=AT_LEAST_ONE, help="The same by the number of hosts."),
    click.option("--shards", type=AT_LEAST_ONE, help="Shards of each split."),
    click.option("--shard-size", default="100MB", show_default=True, help="Size of a shard, 64MiB to 1GiB."),
    click.option("--seed", default=0, show_default=True, help="Seed of the shuffle."),
    click.option("--resize", help="Bring images to HEIGHTxWIDTH: JPEG at quality 95, PNG as they are."),
    click.option("--label", default="", help="Column that holds the class."),
    click.option(
        "--type", "types", multiple=True, help="Type of a column: COLUMN=int|float|bool|text|bytes|label."
    ),
    *TOKEN_OPTIONS,
    click.option("--format", "kind", help="Kind of source, where its name does not say: images, csv, ..."),
    click.option("--skip-bad", is_flag=True, help="Leave bad records out, and list them in the manifest."),
)


def source_options(command: Command) -> Command:
    """Give a command the source, and all that decides on what is made of it, as keyword arguments."""
    return reduce(lambda made, option: option(made), reversed(SOURCE_OPTIONS), command)


def arguments(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, as arguments of `plan.plan`."""
    made_of_text, vocabulary = tokens(asked)
    return {
        "source": asked["source"],
        "name": asked["name"],
        "version": asked["version"],
        "kind": asked["kind"],
        "options": Options(_types(asked["types"]), asked["label"], _resize(asked["resize"]), made_of_text),
        "vocabulary": vocabulary,
        "splits": asked["split"],
        "hosts": _hosts(asked["accelerator"], asked["hosts"]),
        "shards": asked["shards"],
        "shard_size": _bytes(asked["shard_size"]),
        "seed": asked["seed"],
        "skip_bad": asked["skip_bad"],
    }


def _hosts(accelerator: str | None, hosts: int | None) -> int:
    if accelerator and hosts:
        raise UsageError("--for and --hosts both say how many hosts there are.", hint="Give one of them.")
    return accelerators.accelerator(accelerator).hosts if accelerator else hosts or 1


def _types(given: Iterable[str]) -> dict[str, str]:
    types: dict[str, str] = {}
    for one in given:
        name, equals, kind = one.rpartition("=")
        if not equals or not name or name in types:
            raise UsageError(f"Cannot read --type {one}.", hint="Once for each column: --type age=float")
        types[name] = kind
    return types


def _resize(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})(?:[x×]([1-9]\d{0,4}))?", text.strip())
    if not found:
        raise UsageError(f"Cannot read --resize {text}.", hint="Height and width: --resize 224x224")
    return int(found[1]), int(found[2] or found[1])


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if not found:
        raise UsageError(f"Cannot read --shard-size {text}.", hint="For instance 256MB, or 256MiB.")
    return int(float(found[1]) * _UNITS[found[2] or ""])
