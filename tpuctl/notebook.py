"""The magics of a notebook, %tpu and %%tpu: their options, and the script that a cell becomes."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import platform
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tpuctl import job_header
from tpuctl.client.client import Client
from tpuctl.display.following import concise, write
from tpuctl.errors import TpuctlError, UsageError, nearest
from tpuctl.images import FRAMEWORKS

if TYPE_CHECKING:
    from tpuctl.client.records import Progress
    from tpuctl.client.runs.client import SubmitOptions
    from tpuctl.client.runs.run import Run


NEWEST = 5
"""Runs that `%tpu` shows."""
SIMULATED = "[sim] simulated TPUs and storage on this machine: nothing bills"
NAME = "tpu"


def load(shell: Any) -> None:
    """Add `%%tpu` and `%tpu` to an IPython."""
    magics = Magics()
    atexit.register(magics.close)
    shell.register_magic_function(magics.run_cell, "cell", NAME)
    shell.register_magic_function(magics.show_status, "line", NAME)


def unload(shell: Any) -> None:
    """Remove them, and close their client."""
    function = shell.magics_manager.magics["cell"].pop(NAME, None)
    shell.magics_manager.magics["line"].pop(NAME, None)
    magics = getattr(function, "__self__", None)
    if isinstance(magics, Magics):
        atexit.unregister(magics.close)
        magics.close()


# The magics: `%%tpu` runs a cell on a TPU as a job, `%tpu` lists TPUs and runs.


class Magics:
    """The magics of one notebook, which share a client."""

    def __init__(self) -> None:
        self._opened: Client | None = None

    def run_cell(self, line: str, cell: str) -> Run | None:
        """Submit a cell as a job and show its output; its value is the run.

        Raises the error of a run that did not succeed, without a traceback.
        """
        try:
            options = read_options(line)
            if options.help:
                write(options.help)
                return None
            return self._run(options, cell)
        except TpuctlError as error:
            raise concise(error) from None

    def show_status(self, line: str) -> None:
        """Show all TPUs and the newest runs."""
        try:
            if line.strip() in ("-h", "--help"):
                write("%tpu lists TPUs and the newest runs; %%tpu runs a cell: %%tpu --help")
                return
            if line.strip():
                raise UsageError(f"%tpu takes no options: {line.strip()}.", hint="A cell is run by %%tpu.")
            self._show_status()
        except TpuctlError as error:
            raise concise(error) from None

    def close(self) -> None:
        """Close the client; runs and TPUs stay as they are."""
        if self._opened:
            self._opened.close()
        self._opened = None

    @property
    def _client(self) -> Client:
        if self._opened is None:
            self._opened = Client(warn=lambda text: write(f"Warning: {text}"))
            if self._opened.target == "sim":
                write(SIMULATED)
        return self._opened

    def _run(self, options: CellOptions, cell: str) -> Run:
        text = script_text(cell, options.dependencies, options.framework)
        with written(text, Path.cwd()) as script:
            run = self._client.submit(
                script, options.arguments, progress=_write_step, **_submit_options(options)
            )
        if options.is_detached:
            return run
        end = run.follow(live=False)
        if end.error:
            raise end.error
        return run

    def _show_status(self) -> None:
        from IPython.display import display  # noqa: PLC0415  IPython runs, and need not be installed else

        display(self._client.nodes())
        display(self._client.runs(limit=NEWEST))


def _submit_options(options: CellOptions) -> SubmitOptions:
    submitted: SubmitOptions = {
        "environment": options.variables(),
        "secrets": options.secret_values(),
        "include": options.include,
    }
    if options.name:
        submitted["name"] = options.name
    if options.node:
        submitted["node"] = options.node
    if options.accelerator:
        submitted["accelerator"] = options.accelerator
    if options.dataset:
        submitted["dataset"] = options.dataset
    if options.root:
        submitted["root"] = options.root
    if options.setup:
        submitted["setup"] = options.setup
    return submitted


def _write_step(progress: Progress) -> None:
    """Write a step; amounts change too often."""
    if progress.done is None:
        write(progress.text)


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
    root: str | None = None
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
arguments: {name} in this line is replaced by the value of the notebook's variable. The notebook's project is
sent, too, or without one the modules in its folder that the cell imports.

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
        "%%tpu",
        description="Run a cell on a TPU as a job, and bring its output back.",
        epilog=EXAMPLE,
        usage="%%%%tpu [OPTIONS] [-- ARGUMENTS]",
        allow_abbrev=False,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    ("--include",): _repeated("PATH", "more files or folders of the notebook's folder, or of its project"),
    ("--root",): _option(
        "DIR", "folder of the project, which is sent whole; by default that of pyproject.toml or .git"
    ),
    ("--setup",): _option("COMMAND", "command for sh that each host runs before"),
    ("--detach", "-d"): {
        "dest": "is_detached",
        "action": "store_true",
        "help": "return at once; the run goes on",
    },
    ("--help", "-h"): {"dest": "wants_help", "action": "store_true", "help": "show this help"},
}
"""Names of an option -> how argparse reads it."""


STEM = "tpu_cell"
"""Of the script, and so of the run's name."""
MOST = 1000
"""Cells of one folder that may be submitted at once."""
FIRST_LINE = "# a cell of a notebook"
"""Stands where the cell has %%tpu, so that the lines of a traceback are those of the cell."""


def script_text(cell: str, dependencies: Sequence[str] = (), framework: str | None = None) -> str:
    """Return the text of a cell's script, with a header of PEP 723 for what its options ask for.

    Raises UsageError for a syntax error, and where both the cell and the options have requirements.
    """
    text = f"{FIRST_LINE}\n{cell}" if cell.endswith("\n") else f"{FIRST_LINE}\n{cell}\n"
    header = job_header.parse(text, "the cell")
    if (dependencies or framework) and header != job_header.Header():
        option = "--dependency" if dependencies else "--framework"
        raise UsageError(f"The cell has a header, and %%tpu has {option}.", hint="Write it into the header.")
    if header.accepts_python(platform.python_version()):
        _check_syntax(text)
    return text + _header(dependencies, framework)


@contextmanager
def written(text: str, folder: Path) -> Iterator[Path]:
    """Write a script into a folder, beside the modules that it may import, and delete it in the end."""
    path = _write(text, folder)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write(text: str, folder: Path) -> Path:
    for number in range(1, MOST):
        path = folder / (f"{STEM}_{number}.py" if number > 1 else f"{STEM}.py")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"The cell cannot be written to {path}: {error.strerror}.",
                hint="It is sent from the notebook's folder, with the modules there that it imports.",
            ) from error
        return path
    raise UsageError(f"There are {MOST} scripts of cells in {folder}.", hint=f"Delete {STEM}_*.py there.")


def _check_syntax(text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the cell are for its own run
            compile(text, "the cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        code = text.splitlines()[line - 1].strip() if line and line <= text.count("\n") else ""
        place = f"line {line}: " if line else ""
        problem = f"{place}{getattr(error, 'msg', error)}{f': {code}' if code else ''}"
        hint = "Nothing was sent."
        if code.startswith(("!", "%")):
            hint += " The hosts run plain Python: commands of IPython (! and %) are for other cells."
        raise UsageError(f"The cell has a syntax error, {problem}", hint=hint, line=line) from None


def _header(dependencies: Sequence[str], framework: str | None) -> str:
    """Return the header's lines, which stand last: those of the cell keep their numbers."""
    lines = []
    if dependencies:
        lines.append(f"dependencies = {json.dumps(list(dependencies), ensure_ascii=False)}")
    if framework:
        lines += ["[tool.tpuctl]", f'framework = "{framework}"']
    return "\n".join(["", "# /// script", *(f"# {line}" for line in lines), "# ///", ""]) if lines else ""
