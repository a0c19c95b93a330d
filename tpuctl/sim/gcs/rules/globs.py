"""matchGlob patterns, https://cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob."""

from __future__ import annotations

import re

from tpuctl.sim.gcs.errors import invalid

TOKENS = (
    (re.compile(r"\*\*/"), "(?:.*/)?"),  # also no folder at all
    (re.compile(r"\*\*"), ".*"),
    (re.compile(r"\*"), "[^/]*"),
    (re.compile(r"\?"), "[^/]"),
)
"""Wildcard -> its regular expression; the first that matches counts."""

_CLASS = re.compile(r"\[([!^]?)([^\]]+)\]")
_CHOICE = re.compile(r"\{([^{}]*)\}")


def compile_glob(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression; raises 400 for an invalid glob."""
    try:
        return re.compile(_translate(glob), re.DOTALL)
    except re.error as error:
        raise invalid(f"Invalid value for parameter matchGlob: {glob}") from error


def _translate(glob: str) -> str:
    out, at = "", 0
    while at < len(glob):
        piece, at = _next(glob, at)
        out += piece
    return out


def _next(glob: str, at: int) -> tuple[str, int]:
    for token, expression in TOKENS:
        if wildcard := token.match(glob, at):
            return expression, wildcard.end()
    if characters := _CLASS.match(glob, at):
        negated = "^" if characters[1] else ""
        return f"[{negated}{characters[2]}]".replace("\\", "\\\\"), characters.end()
    if choices := _CHOICE.match(glob, at):
        return "(?:" + "|".join(map(_translate, choices[1].split(","))) + ")", choices.end()
    return re.escape(glob[at]), at + 1
