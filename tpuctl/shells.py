"""Writes shell code: commands of tpuctl to go on with, and what sets and restores environment variables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

NO_OPTIONS: Mapping[str, str] = {}
SAVED = "TPUCTL_SHELL_BEFORE"
"""The variable that keeps the earlier values of the others as JSON: null for one that was not set."""


@dataclass(frozen=True)
class Shell:
    """The syntax of a shell; each line also ends in `;`, for an unquoted `eval $(...)`."""

    set: str
    unset: str
    apply: str
    """What a user types to evaluate the output of a command."""

    def assignment(self, name: str, value: str | None) -> str:
        """Return the line that sets a variable, or unsets it for None."""
        if value is None:
            return self.unset.format(name=name)
        return self.set.format(name=name, value=self.quoted(value))

    def quoted(self, value: str) -> str:
        """Return a value quoted as one word of the shell."""
        if self is SHELLS["fish"]:  # in whose single quotes a backslash escapes
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return shlex.quote(value)


SHELLS = {
    "posix": Shell("export {name}={value};", "unset {name};", 'eval "$({command})"'),
    "fish": Shell("set -gx {name} {value};", "set -e {name};", "{command} | source"),
}


def quoted_path(path: str) -> str:
    """Return a path quoted as one word of a POSIX shell that no command takes for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def again(typed: Sequence[str], options: Mapping[str, str] = NO_OPTIONS) -> str:
    """Return a command of tpuctl as it was typed, with options at other values; a flag has the value ''."""
    return shlex.join(["tpuctl", *with_options(typed, options)])


def with_options(typed: Sequence[str], options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of such a command.

    An option stays in its place, once; one that was not typed comes before `--`. What follows that stays.
    """
    end = typed.index("--") if "--" in typed else len(typed)
    missing, kept, words = dict(options), list[str](), iter(typed[:end])
    for word in words:
        name, equals, value = word.partition("=")
        if name not in options:
            kept.append(word)
            continue
        if options[name] and not equals:
            value = next(words, "")
        if name in missing:
            is_same = missing.pop(name) == value
            kept += [word] if is_same and equals else _option(name, options[name])
    kept += [word for name, value in missing.items() for word in _option(name, value)]
    return (*kept, *typed[end:])


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else [name]


def with_folder(path: str, folder: str) -> str:
    """Return a PATH in which a folder comes first, and once."""
    return ":".join([folder, *without_folder(path, folder).split(":")]) if path else folder


def without_folder(path: str, folder: str) -> str:
    """Return a PATH without a folder."""
    return ":".join(entry for entry in path.split(":") if entry != folder)


def login_shell(environ: Mapping[str, str]) -> str:
    """Return the key in `SHELLS` of the shell that the user logs in with."""
    name = PurePath(environ.get("SHELL", "")).name
    return name if name in SHELLS else "posix"


def changes_to_set(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the assignments that set `variables` and save the values of before, also when repeated."""
    saved = saved_values(environ)
    replaced = {name: saved.get(name, environ.get(name)) for name in variables}
    return {**variables, SAVED: json.dumps({**saved, **replaced})}


def changes_to_restore(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the assignments that restore the saved values, None to unset; empty when none are saved."""
    saved = saved_values(environ)
    return {**saved, SAVED: None} if saved else {}


def saved_values(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the saved values by name; empty when none are saved or the variable is malformed."""
    try:
        saved = json.loads(environ.get(SAVED, "{}"))
    except ValueError:
        return {}
    return saved if isinstance(saved, dict) else {}
