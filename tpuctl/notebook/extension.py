"""Loads the magics into an IPython: `%load_ext tpuctl`."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuctl.client.client import Client
from tpuctl.display.errors import concise
from tpuctl.display.following import write
from tpuctl.errors import TpuctlError, UsageError
from tpuctl.notebook.cell_script import script_text, written
from tpuctl.notebook.options import CellOptions, read_options

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
    if options.setup:
        submitted["setup"] = options.setup
    return submitted


def _write_step(progress: Progress) -> None:
    """Write a step; amounts change too often."""
    if progress.done is None:
        write(progress.text)
