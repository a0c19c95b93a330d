"""Finds the seeds of random numbers in what a script is started with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

from tpuctl.masking.names import words_of

MOST_SEEDS = 100
_OPTION = re.compile(r"-{0,2}(?P<name>[A-Za-z_][\w.-]{0,99})(?:=(?P<value>.{1,40}))?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}")


def seeds_of(
    arguments: Sequence[str], variables: Mapping[str, str], hidden: Collection[str] = ()
) -> dict[str, str]:
    """Return option or variable -> seed: `--seed 7`, `--data-seed=7`, `seed=7`, PYTHONHASHSEED.

    A seed is a whole number, and `random` for PYTHONHASHSEED. `hidden` variables are secrets.
    """
    seeds = {}
    for argument, after in itertools.pairwise([*arguments, ""]):
        match = _OPTION.fullmatch(argument)
        if not match or not _names_a_seed(match["name"]):
            continue
        is_word = match["value"] is None and not argument.startswith("-")
        value = "" if is_word else match["value"] or after
        if _NUMBER.fullmatch(value):
            seeds[argument.partition("=")[0]] = value
    for name, value in variables.items():
        if name not in hidden and _names_a_seed(name) and (_NUMBER.fullmatch(value) or value == "random"):
            seeds[name] = value
    return dict(sorted(seeds.items())[:MOST_SEEDS])


def _names_a_seed(name: str) -> bool:
    """Whether the last word of a name is seed, also of PYTHONHASHSEED."""
    words = words_of(name)
    return bool(words) and words[-1] in ("seed", "hashseed", "pythonhashseed", "randomseed")
