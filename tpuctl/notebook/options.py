"""Reads the options of `%%tpu`."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tpuctl.errors import UsageError, nearest
from tpuctl.job_header import FRAMEWORKS


@dataclass(frozen=True)
class CellOptions:
    """What the line of a cell asks for; None and empty leave it to the cell's header, or to tpuctl."""

    node: str | None = None
    accelerator: str | None = None
    dataset: str | None = None
    name: str | None = None
    environment: tuple[str, ...] = ()
    """KEY=VALUE, or KEY for its value in the kernel's environment."""
    secrets: tuple[str, ...] = ()
    """KEY, whose value in the kernel's environment no disk gets."""
    dependencies: tuple[str, ...] = ()
    framework: str | None = None
    include: tuple[str, ...] = ()
    setup: str | None = None
    is_detached: bool = False
    help: str = ""
    """The help, if that is all that the line asks for."""
    arguments: tuple[str, ...] = ()
    """Of the cell's program."""

    def variables(self) -> dict[str, str]:
        """Return the variables of the program; raises UsageError for one that has no value here."""
        pairs = (pair.partition("=") for pair in self.environment)
        return {key: value if is_set else _kernel_value(key) for key, is_set, value in pairs}

    def secret_values(self) -> dict[str, str]:
        """Return the secrets; raises UsageError for one whose value is in the cell, or missing."""
        for pair in self.secrets:
            if "=" in pair:
                key = pair.partition("=")[0]
                raise UsageError(
                    f"The notebook would keep the value of the secret {key}.",
                    hint=f"Write --secret {key}, and set it before: os.environ['{key}'] = getpass()",
                )
        return {key: _kernel_value(key) for key in self.secrets}


def _kernel_value(key: str) -> str:
    """Return the value of a variable in the kernel's environment; raises UsageError without one."""
    if key not in os.environ:
        raise UsageError(
            f"{key} has no value in the kernel.", hint=f"Give it one before: os.environ['{key}'] = ..."
        )
    return os.environ[key]


EXAMPLE = """
The cell becomes a script, as for 'tpuctl submit'. It gets no variable of the notebook, except by --env and
arguments: {name} in this line is replaced by the value of the notebook's variable. Modules in the notebook's
folder that the cell imports are sent, too.

Example:
  %%tpu --node n1 --dataset digits --dependency numpy
  import os
  print(os.environ["TPUCTL_DATA_DIR"])
"""


def read_options(line: str) -> CellOptions:
    """Return the options of a cell's first line; raises UsageError for one that is wrong."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%tpu {line}: {error}.", hint=HINT) from error
    options, arguments = _split(words)
    values = vars(_parser().parse_args(options))
    if values.pop("wants_help"):
        return CellOptions(help=_parser().format_help())
    texts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return CellOptions(**texts, arguments=arguments)


HINT = "All options: %%tpu --help"


def _split(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return the options, and the arguments of the program after `--`."""
    place = words.index("--") if "--" in words else len(words)
    return words[:place], tuple(words[place + 1 :])


class _Parser(argparse.ArgumentParser):
    """A parser that raises UsageError, where others end the process."""

    def error(self, message: str) -> NoReturn:
        names = [name for action in self._actions for name in action.option_strings]
        unknown = message.removeprefix("unrecognized arguments: ").split()
        close = nearest(unknown[0], names, 1) if message.startswith("unrecognized") and unknown else []
        hint = f"Did you mean {close[0]}? {HINT}" if close else HINT
        raise UsageError(f"%%tpu: {message}.", hint=hint)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "%%tpu", description="Run a cell on a TPU as a job, and bring its output back.", epilog=EXAMPLE,
        usage="%%%%tpu [OPTIONS] [-- ARGUMENTS]", allow_abbrev=False, add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    for names, more in OPTIONS.items():
        parser.add_argument(*names, **more)
    return parser


def _option(metavar: str, text: str, **more: object) -> dict[str, Any]:
    return {"metavar": metavar, "help": text, **more}


def _repeated(metavar: str, text: str, **more: object) -> dict[str, Any]:
    return _option(metavar, f"{text}; repeat it for more", action="append", default=[], **more)


OPTIONS = {
    ("--node", "--tpu"): _option("NAME", "node to run on; by default your only READY one of the type"),
    ("--accelerator",): _option("TYPE", "type to run on; overrides the cell's header"),
    ("--dataset",): _option("NAME", "NAME or NAME/VERSION; overrides the cell's header"),
    ("--name",): _option("RUN", "name of the run; by default one with the time"),
    ("--env",): _repeated(
        "KEY[=VALUE]", "variable of the program, KEY alone with its value in the kernel", dest="environment"
    ),
    ("--secret",): _repeated(
        "KEY", "variable with its value in the kernel, which no disk gets", dest="secrets"
    ),
    ("--dependency",): _repeated(
        "PACKAGE", "package that hosts install, such as numpy or 'jax>=0.5'", dest="dependencies"
    ),
    ("--framework",): _option(
        "NAME", "tensorflow, jax or pytorch: decides which hosts run the cell", choices=FRAMEWORKS
    ),
    ("--include",): _repeated("PATH", "more files or folders of the notebook's folder"),
    ("--setup",): _option("COMMAND", "command for sh that each host runs before"),
    ("--detach", "-d"): {
        "dest": "is_detached", "action": "store_true", "help": "return at once; the run goes on",
    },
    ("--help", "-h"): {"dest": "wants_help", "action": "store_true", "help": "show this help"},
}  # fmt: skip
"""Names of an option -> how argparse reads it."""
