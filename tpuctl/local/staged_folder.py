"""Fills a folder with files from elsewhere: each is completed beside the others, then moved to its place."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tpuctl.local import folder_lock
from tpuctl.local.confined_folder import ConfinedFolder
from tpuctl.local.places import fold_of
from tpuctl.object_content import Content

STAGING = ".tpuctl-pull"
"""Folder for files that are not complete; no name from elsewhere begins with a dot."""


class StagedFolder:
    """A folder that one process at a time fills; no link in it is followed."""

    def __init__(self, path: Path, on_wait: Callable[[], object] = lambda: None) -> None:
        """Make the folder, and remove what a process that was killed left in it. Raises OSError.

        While another process fills it, this waits, after `on_wait` was called.
        """
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = folder_lock.hold(path, on_wait)
        self._staging = path / STAGING
        try:
            self._remove_staging()
            self._staging.mkdir(mode=0o700)
            self.fold = fold_of(self._staging)
            """How this disk compares names."""
            self._numbers = itertools.count()
            self._folder = ConfinedFolder(path)
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> StagedFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.__exit__(kind, error, trace)
        try:
            self._remove_staging(ignore_errors=kind is not None)  # other threads may still delete their files
        finally:
            os.close(self._lock)

    def has(self, parts: Sequence[str], content: Content) -> bool:
        """Return whether a path has this content; raises NotAFileError for a link, a pipe or a folder."""
        try:
            with self._folder.open(parts) as stream:
                return Content.of_stream(stream, most=content.size) == content
        except FileNotFoundError:
            return False

    @contextmanager
    def staged(self, parts: Sequence[str]) -> Iterator[Path]:
        """Yield a path to write a file to, which is moved to its place when the block ends.

        Raises NotAFileError as `has` does.
        """
        path = self._staging / str(next(self._numbers))
        try:
            yield path
            self._folder.place(path, parts)
        finally:
            path.unlink(missing_ok=True)

    def join(self, chunks: Sequence[Sequence[str]], parts: Sequence[str]) -> None:
        """Write the contents of files of the folder into one, in their order."""
        with self.staged(parts) as path, path.open("xb") as joined:
            for chunk in chunks:
                with self._folder.open(chunk) as stream:
                    shutil.copyfileobj(stream, joined)

    def _remove_staging(self, *, ignore_errors: bool = False) -> None:
        if self._staging.is_symlink() or self._staging.is_file():
            self._staging.unlink()
        elif self._staging.exists():
            shutil.rmtree(self._staging, ignore_errors=ignore_errors)
