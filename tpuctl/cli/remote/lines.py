"""Prints the output of workers line by line, each with its worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tpuctl.cli import printing
from tpuctl.flows.remote.execution import Output, Stream
from tpuctl.text.whole_lines import WholeLines


class LinePrinter:
    """Shows lines as they become complete, on the same stream, with the worker if there are several."""

    def __init__(self, workers: Sequence[int]) -> None:
        width = len(str(max(workers)))
        self._labels = {worker: f"[{worker:>{width}}] " if len(workers) > 1 else "" for worker in workers}
        self._streams: dict[tuple[int, Stream], WholeLines] = defaultdict(WholeLines)

    def take(self, output: Output) -> None:
        """Take a piece of output."""
        self._print(
            output.worker, output.stream, self._streams[output.worker, output.stream].feed(output.data)
        )

    def close(self) -> None:
        """Show what has come of lines without an end."""
        for (worker, stream), lines in self._streams.items():
            self._print(worker, stream, lines.end())

    def _print(self, worker: int, stream: Stream, lines: bytes) -> None:
        if lines:
            printing.write_log_lines(lines, self._labels[worker], err=stream == "stderr")


def write_raw(output: Output) -> None:
    """Write a piece of output as it is, to the stream that it was written to."""
    printing.write_bytes(output.data, err=output.stream == "stderr")
