"""matchGlob patterns, https://cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob."""

from __future__ import annotations

import re

from tpuctl.sim.gcs.errors import invalid

TOKENS = (
    (re.compile(r"\*\*"), ".*"),
    (re.compile(r"\*"), "[^/]*"),
    (re.compile(r"\?"), "[^/]"),
)
"""Pattern -> the regular expression it stands for, first match first."""

_CLASS = re.compile(r"\[([!^]?)([^\]]+)\]")
_CHOICE = re.compile(r"\{([^{}]*)\}")


def compile_glob(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression; raises 400 when it cannot be read."""
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
        if token.match(glob, at):
            return expression, token.match(glob, at).end()  # type: ignore[union-attr]
    if found := _CLASS.match(glob, at):
        negated = "^" if found[1] else ""
        return f"[{negated}{found[2]}]".replace("\\", "\\\\"), found.end()
    if found := _CHOICE.match(glob, at):
        return "(?:" + "|".join(_translate(choice) for choice in found[1].split(",")) + ")", found.end()
    return re.escape(glob[at]), at + 1
