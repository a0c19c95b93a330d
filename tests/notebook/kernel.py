"""A real kernel of Jupyter, which nbclient drives: cell after cell in one process."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.event_loops.thread import LoopThread
from tpuctl.polling import Backoff, poll

PATIENCE = 300
"""Seconds for a cell, on a machine that is busy."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Outputs:
    """What a cell has shown."""

    items: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """What was printed on stdout."""
        return "".join(item["text"] for item in self.items if item.get("name") == "stdout")

    @property
    def error(self) -> str:
        """The error as a notebook shows it, without colours; empty for a cell that succeeded."""
        errors = ["\n".join(item["traceback"]) for item in self.items if item["output_type"] == "error"]
        return _COLOUR.sub("", "\n".join(errors))

    @property
    def bundles(self) -> list[dict[str, str]]:
        """What was displayed, and the value of the cell, each as MIME type -> document."""
        return [item["data"] for item in self.items if "data" in item]

    @property
    def html(self) -> str:
        """Everything that was displayed as HTML."""
        return "".join(bundle.get("text/html", "") for bundle in self.bundles)

    @property
    def value(self) -> str:
        """The value of the cell as plain text."""
        (value,) = (item["data"] for item in self.items if item["output_type"] == "execute_result")
        return str(value["text/plain"])


class Kernel:
    """A kernel with an environment of its own; `close` ends it, whatever happened."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """Start it in `folder`; its sockets are files, so that it takes no port of another test's."""
        self._own = Path(tempfile.mkdtemp(prefix="k-"))  # short: so must be the names of sockets
        isolated = {
            name: str(self._own)
            for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")
        }
        isolated["PYTHONDONTWRITEBYTECODE"] = "1"
        self.notebook = nbformat.v4.new_notebook()
        self._manager = AsyncKernelManager(
            kernel_name="python3", transport="ipc", ip=str(self._own / "s"),
            connection_file=str(self._own / "kernel.json"),
        )  # fmt: skip
        self._client = NotebookClient(
            self.notebook, km=self._manager, timeout=PATIENCE, startup_timeout=PATIENCE, allow_errors=True
        )
        self._thread = LoopThread()
        self._setup: AbstractAsyncContextManager[None] = self._client.async_setup_kernel(
            env={**environment, **isolated}, cwd=str(folder), cleanup_kc=True
        )
        try:
            self._wait(self._setup.__aenter__())
        except BaseException:
            self.close()
            raise

    def run(self, source: str) -> Outputs:
        """Execute a cell to its end."""
        cell, future = self._begin(source)
        future.result(PATIENCE)
        return Outputs(cell["outputs"])

    def interrupted(self, source: str, is_time: Callable[[Outputs], bool]) -> Outputs:
        """Execute a cell, and interrupt it as the stop button does once `is_time`."""
        cell, future = self._begin(source)
        poll(
            lambda: True if is_time(Outputs(list(cell["outputs"]))) else None,
            awaiting="what the cell shows", timeout=PATIENCE, backoff=Backoff(first=0.01, longest=0.1),
        )  # fmt: skip
        self._wait(self._manager.interrupt_kernel())
        future.result(PATIENCE)
        return Outputs(cell["outputs"])

    def _begin(self, source: str) -> tuple[dict[str, Any], Future[Any]]:
        cell = nbformat.v4.new_code_cell(source)
        self.notebook.cells.append(cell)
        place = len(self.notebook.cells) - 1
        return cell, self._thread.submit(self._client.async_execute_cell(cell, place))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.submit(work).result(PATIENCE)

    def close(self) -> None:
        """End the kernel."""
        try:
            self._thread.finish(self._setup.__aexit__(None, None, None))
        finally:
            shutil.rmtree(self._own, ignore_errors=True)
