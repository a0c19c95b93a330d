"""Reads the variables that a user gives to a script, and keeps values out of the bucket unless asked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.runs import NOT_STORED

_NAME = re.compile(r"[^\W\d]\w{0,254}")


def variables_of(
    pairs: Sequence[str],
    files: Sequence[Path],
    secrets: Sequence[str],
    stored: Collection[str],
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables of --env-file, --env, which overrides it, and --secret; raises UsageError."""
    variables: dict[str, str] = {}
    for file in files:
        variables.update(read_environment_file(file, environ))
    variables.update(parse_environment(pairs, environ))
    hidden = parse_secrets(secrets, environ)
    for name in hidden:
        if name in variables:
            raise UsageError(f"{name} is given by --secret and by --env or --env-file.", hint="Give it once.")
        if name in stored:
            raise UsageError(f"--store-env {name} would store a secret.", hint="Leave it out.")
    return {**variables, **hidden}


def parse_environment(pairs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `KEY=VALUE`, and of `KEY` alone with its value in `environ`.

    Raises UsageError, which never quotes a value, for anything else.
    """
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(
                "The value of --env does not begin with the name of a variable.",
                hint="Write --env LEARNING_RATE=0.1, or --env API_KEY for the value of this shell.",
            )
        if not equals and name not in environ:
            raise UsageError(
                f"This shell has no variable {name}, which --env {name} passes on.",
                hint=f"Export it first, or write --env {name}=VALUE",
            )
        variables[name] = value if equals else environ[name]
    return variables


def parse_secrets(pairs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `KEY`, with its value in `environ`, and of `KEY=@FILE`, with what the file has.

    A newline at the file's end is no part of the value. Raises UsageError, which never quotes a value, also
    for `KEY=VALUE`: lists of processes and the shell's history would show it.
    """
    variables = {}
    for pair in pairs:
        name, equals, source = pair.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(
                "The value of --secret does not begin with the name of a variable.", hint=_SOURCES
            )
        if equals and not source.startswith("@"):
            raise UsageError(f"--secret {name} has its value on the command line.", hint=_SOURCES)
        if not equals and name not in environ:
            raise UsageError(
                f"This shell has no variable {name}, which --secret {name} passes on.",
                hint=f"Export it first, or write --secret {name}=@FILE",
            )
        variables[name] = _text(Path(source[1:])).removesuffix("\n") if equals else environ[name]
    return variables


_SOURCES = "Write --secret API_KEY for the value of this shell, or --secret API_KEY=@FILE."


def read_environment_file(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a file with lines KEY=VALUE, or KEY for the value in `environ`.

    Empty lines and comments are skipped, `export` before a name is too, and quotes around a whole value are
    no part of it. Nothing is expanded. Raises UsageError that names the line and never quotes a value.
    """
    variables = {}
    for number, line in enumerate(_text(path).splitlines(), start=1):
        text = line.strip().removeprefix("export ").lstrip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        name, value = name.rstrip(), value.lstrip()
        if not _NAME.fullmatch(name) or not (equals or name in environ):
            raise UsageError(
                f"Line {number} of {path} is neither KEY=VALUE nor the name of a variable of this shell.",
                hint="Write lines such as LEARNING_RATE=0.1",
            )
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        variables[name] = (value[1:-1] if is_quoted else value) if equals else environ[name]
    return variables


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST // 1024} KiB.", hint="It has to hold values.")
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file.", hint="Encode it, for instance as base64.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Correct its path.") from error


LARGEST = 128 * 1024
"""Bytes of a file of values; Linux limits a single variable to as many."""


def check_values(variables: Mapping[str, str]) -> None:
    """Raise UsageError for a value that no process can have in its environment."""
    for name, value in variables.items():
        if "\0" in value:
            raise UsageError(
                f"The value of {name} holds a NUL character.", hint="Encode it, for instance as base64."
            )


def stored_environment(variables: Mapping[str, str], stored: Collection[str]) -> dict[str, str]:
    """Return variables as the bucket gets them: the values of those in `stored`, of all others the names.

    Raises UsageError for one in `stored` that is not given.
    """
    for name in stored:
        if name not in variables:
            raise UsageError(
                f"--store-env {name} stores the value of a variable that the script does not get.",
                hint=f"Add --env {name}=VALUE",
            )
    return {name: value if name in stored else NOT_STORED for name, value in variables.items()}
