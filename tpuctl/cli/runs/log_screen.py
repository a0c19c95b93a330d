"""Shows lines of logs as they come, and on a terminal the state of progress bars below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpuctl.cli import output, printing
from tpuctl.flows.runs.logs.reader import Line

Show = Callable[[Line], None]


class LogScreen:
    """Where one command shows the log of a run."""

    def __init__(
        self, *, as_json: bool, raw: bool, labels: bool, timestamps: bool, is_terminal: bool
    ) -> None:
        """Take `labels`, which says whether each line begins with its worker."""
        self._is_live = is_terminal and not (raw or as_json)
        self._as_json = as_json
        self._raw = raw
        self._labels = labels
        self._timestamps = timestamps
        self._has_live_line = False
        self._newest: dict[int, bytes] = {}

    def show(self, line: Line) -> None:
        """Show a line, or many that came as one."""
        self.clear()
        if self._raw:
            printing.write_bytes(line.data)
        elif self._as_json:
            time = {"time": line.time} if self._timestamps else {}
            output.json_line({"worker": line.worker, **time, "text": line.text})
        else:
            printing.write_log_lines(line.data, self._label(line), errors="replace")

    def show_unfinished(self, lines: Sequence[Line]) -> None:
        """Show the state of a line without an end, of the worker that printed last; only on a terminal."""
        if not self._is_live:
            return
        changed = [line for line in lines if self._newest.get(line.worker) != line.data]
        self._newest = {line.worker: line.data for line in lines}
        if changed:
            self.clear()
            newest = max(changed, key=lambda line: line.time)
            printing.write_live_line(newest.text, self._label(newest))
            self._has_live_line = True
        elif not lines:
            self.clear()

    def clear(self) -> None:
        """Remove the line without an end: something else is shown, or the log is over."""
        if self._has_live_line:
            printing.erase_live_line()
            self._newest = {}
        self._has_live_line = False

    def warner(self, warn: Callable[[str], None]) -> Callable[[str], None]:
        """Return what shows a warning on a line of its own."""

        def warn_below(text: str) -> None:
            self.clear()
            warn(text)

        return warn_below

    def _label(self, line: Line) -> str:
        time = f"{line.time} " if self._timestamps else ""
        return f"{time}[{line.worker}] " if self._labels else time
