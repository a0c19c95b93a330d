"""Runs the code cells of a notebook in order, in one process, and writes the notebook with their outputs.

The process is the run's own, as that of a script: its signals, its chips, its log. It is a file of its own
on the host, which the run's Python starts with the run's IPython.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Optional, TextIO


class _Tee:
    """A stream that keeps what is written to it, for the outputs of a cell."""

    def __init__(self, stream: TextIO, name: str, outputs: List[Dict[str, Any]]) -> None:
        self._stream, self._name, self._outputs = stream, name, outputs

    def write(self, text: str) -> int:
        self._stream.write(text)
        last = self._outputs[-1] if self._outputs else {}
        if last.get("name") != self._name:
            last = {"output_type": "stream", "name": self._name, "text": ""}
            self._outputs.append(last)
        last["text"] += text
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Outputs:
    """The outputs of the cell that runs; what is shown as a picture or a table is in the log as a text."""

    def __init__(self) -> None:
        self.of_cell: List[Dict[str, Any]] = []
        self.number = 0
        self._log = sys.stdout

    def begin(self, cell: Dict[str, Any]) -> None:
        """Take what is printed from now on for the output of a cell."""
        cell["outputs"] = self.of_cell = []
        self.number += 1
        cell["execution_count"] = self.number
        sys.stdout = _Tee(self._log, "stdout", self.of_cell)
        sys.stderr = _Tee(self._log, "stderr", self.of_cell)

    def show(self, kind: str, data: Dict[str, Any], metadata: Optional[Dict[str, Any]], **more: Any) -> None:
        """Add what a cell displays, or its value."""
        self.of_cell.append({"output_type": kind, "data": data, "metadata": metadata or {}, **more})
        self._log.write("%s\n" % data.get("text/plain", "(%s)" % ", ".join(data)))

    def fail(self, error: BaseException) -> None:
        """Add how a cell failed: its traceback was printed."""
        name, text = type(error).__name__, str(error)
        lines = ["%s: %s" % (name, text)]
        self.of_cell.append({"output_type": "error", "ename": name, "evalue": text, "traceback": lines})


def run(source: str, target: str) -> int:
    """Run a notebook up to its first failing cell, write it to `target` after each, return the exit code."""
    with open(source, encoding="utf-8") as stream:
        notebook = json.load(stream)
    outputs = _Outputs()
    shell = _shell(outputs)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        cell.update(outputs=[], execution_count=None)
    for cell in cells:
        outputs.begin(cell)
        result = shell.run_cell("".join(cell["source"]), store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            outputs.fail(error)
        _write(notebook, target)
        if error is not None and "raises-exception" not in cell.get("metadata", {}).get("tags", ()):
            return _exit_code(error, outputs.number)
    return 0


def _shell(outputs: _Outputs) -> Any:
    """Return an IPython whose commands write to the log, and install nothing."""
    from IPython.core.displayhook import DisplayHook  # of the run's packages
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    class Hook(DisplayHook):  # type: ignore[misc]
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            outputs.show("execute_result", format_dict, md_dict, execution_count=outputs.number)

        def finish_displayhook(self) -> None:
            pass

    class Publisher(DisplayPublisher):  # type: ignore[misc]
        def publish(self, data: Any, metadata: Any = None, *_: Any, **more: Any) -> None:
            outputs.show("display_data", data, metadata)

        def clear_output(self, wait: bool = False) -> None:
            outputs.of_cell.clear()

    class Shell(InteractiveShell):  # type: ignore[misc]
        def system(self, cmd: str) -> None:
            if _installs(cmd):
                return _skip(cmd)
            process = subprocess.Popen(
                ["/bin/bash", "-c", cmd],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            for line in process.stdout or ():
                sys.stdout.write(line)
            self.user_ns["_exit_code"] = process.wait()
            return None

    shell = Shell.instance(displayhook_class=Hook, display_pub_class=Publisher, colors="nocolor")
    shell.register_magic_function(lambda line: _skip("pip " + line), "line", "pip")
    return shell


def _installs(command: str) -> bool:
    words = command.split()
    words = words[2:] if words[1:2] == ["-m"] else words
    return words[:1] in (["pip"], ["pip3"]) and words[1:2] == ["install"]


def _skip(command: str) -> None:
    print("[tpuctl] not run: %s (packages are installed before the first cell)" % command.strip())


def _exit_code(error: BaseException, number: int) -> int:
    if not isinstance(error, SystemExit):
        print("[tpuctl] cell %d failed" % number)
        return 1
    code: Optional[object] = error.code
    return code if isinstance(code, int) else int(code is not None)


def _write(notebook: Dict[str, Any], target: str) -> None:
    with open(target + ".part", "w", encoding="utf-8") as stream:
        json.dump(notebook, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
    os.replace(target + ".part", target)


if __name__ == "__main__":
    sys.path[0] = ""
    os.environ["IPYTHONDIR"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ipython")
    notebook_file, written = sys.argv[1:3]
    sys.argv[:3] = [notebook_file]
    sys.exit(run(notebook_file, written))
