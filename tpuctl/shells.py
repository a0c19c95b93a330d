"""Environment variables as the text that a shell evaluates: to set them, and to put back what was there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

BEFORE = "TPUCTL_SHELL_BEFORE"
"""Variable that remembers, as JSON, what the others were before: null for one that was not set."""


@dataclass(frozen=True)
class Shell:
    """How a kind of shell sets and unsets; each line also ends in `;`, for an unquoted `eval $(...)`."""

    set: str
    unset: str
    apply: str
    """How a user has the output of a command evaluated."""

    def assignment(self, name: str, value: str | None) -> str:
        """Return the line that sets a variable, or unsets it for None."""
        if value is None:
            return self.unset.format(name=name)
        return self.set.format(name=name, value=self.quoted(value))

    def quoted(self, value: str) -> str:
        """Return a value as one word that the shell takes as it is."""
        if self is SHELLS["fish"]:  # in whose single quotes a backslash escapes
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return shlex.quote(value)


SHELLS = {
    "posix": Shell("export {name}={value};", "unset {name};", 'eval "$({command})"'),
    "fish": Shell("set -gx {name} {value};", "set -e {name};", "{command} | source"),
}


def own_shell(environ: Mapping[str, str]) -> str:
    """Return the kind of shell that the user logs in with."""
    name = PurePath(environ.get("SHELL", "")).name
    return name if name in SHELLS else "posix"


def entering(wanted: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what to set so that `wanted` holds and can be taken back, the second time too."""
    known = earlier(environ)
    before = {name: known.get(name, environ.get(name)) for name in wanted}
    return {**wanted, BEFORE: json.dumps({**known, **before})}


def leaving(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return what to set to take it back, None for a variable to unset; empty when nothing was set."""
    known = earlier(environ)
    return {**known, BEFORE: None} if known else {}


def earlier(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return what the variables were before, by name; empty when nothing was set, or it is not ours."""
    try:
        known = json.loads(environ.get(BEFORE, "{}"))
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}
