"""Keeps the output of workers: in files, or the end of it in memory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tpuctl.errors import StateError
from tpuctl.flows.remote.execution import Output, Stream
from tpuctl.local.private_folder import FILE_MODE, make_missing_folders

MOST_KEPT = 1 << 18
"""Bytes of each stream of a worker that are kept in memory: its end."""
ENDINGS: dict[Stream, str] = {"stdout": "out", "stderr": "err"}


class OutputFiles:
    """Files `worker-3.out` and `worker-3.err` in a folder, which only this user can read.

    Files of an earlier command are replaced. Raises StateError when they cannot be written.
    """

    def __init__(self, folder: Path, workers: Sequence[int]) -> None:
        self._folder = folder
        self._workers = workers
        self._files: dict[tuple[int, Stream], BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> OutputFiles:
        try:
            make_missing_folders(self._folder)
            for worker in self._workers:
                for stream in ENDINGS:
                    path = self.path(worker, stream)
                    path.unlink(missing_ok=True)  # a link, too
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    file = os.fdopen(os.open(path, flags, FILE_MODE), "wb", buffering=0)
                    self._files[worker, stream] = self._stack.enter_context(file)
        except OSError as error:
            self._stack.close()
            raise self._refusal(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, worker: int, stream: Stream) -> Path:
        """Return the path of a file."""
        return self._folder / f"worker-{worker}.{ENDINGS[stream]}"

    def take(self, output: Output) -> None:
        """Write a piece of output."""
        view = memoryview(output.data)
        try:
            while view:
                view = view[self._files[output.worker, output.stream].write(view) :]
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> StateError:
        return StateError(
            f"The output cannot be written to {error.filename or self._folder}: {error.strerror}.",
            hint="Choose another --output-dir; the command was ended on the hosts if it had begun.",
        )


@dataclass
class Kept:
    """The end of a stream, and how many bytes before it were dropped."""

    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.data += data
        if len(self.data) > 2 * MOST_KEPT:
            self._cut()

    def _cut(self) -> None:
        surplus = max(len(self.data) - MOST_KEPT, 0)
        self.dropped += surplus
        del self.data[:surplus]

    def text(self) -> str:
        """Return the end of the stream; bytes that are no UTF-8 are replaced."""
        self._cut()
        return self.data.decode(errors="replace")


class OutputEnds:
    """The end of each stream of each worker, in memory."""

    def __init__(self) -> None:
        self._streams: dict[tuple[int, Stream], Kept] = defaultdict(Kept)

    def take(self, output: Output) -> None:
        """Add a piece of output."""
        self._streams[output.worker, output.stream].add(output.data)

    def stream(self, worker: int, stream: Stream) -> Kept:
        """Return what is kept of a stream."""
        return self._streams[worker, stream]
