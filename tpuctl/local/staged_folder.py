"""Fills a folder with files from elsewhere: each is completed beside the others, then moved to its place."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tpuctl.local import private_folder
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError
from tpuctl.local.private_folder import fold_of
from tpuctl.object_content import Content

STAGING = ".tpuctl-pull"
"""Folder for files that are not complete; no name from elsewhere begins with a dot."""
_JOURNAL = "placed"
"""Names files that belong together, such as those of a checkpoint, before they are placed; lines of JSON."""
_COMPLETE = re.compile(r"[0-9a-f]{64}")
"""Name of a file that waits for others."""


class StagedFolder:
    """A folder that one process at a time fills; no link in it is followed."""

    def __init__(self, path: Path, on_wait: Callable[[], object] = lambda: None) -> None:
        """Make the folder and lock it, calling `on_wait` if another process has the lock. Raises OSError."""
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = private_folder.hold(path, on_wait)
        try:
            self._staging = path / STAGING
            self._remove_remains()
            self._staging.mkdir(mode=0o700, exist_ok=True)
            self.fold = fold_of(self._staging)
            """How this disk compares names."""
            self._numbers = itertools.count()
            self._journal_lock = threading.Lock()
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
            if kind is None:
                shutil.rmtree(self._staging)
            elif not any(self._staging.iterdir()):
                self._staging.rmdir()
        except OSError:
            if kind is None:
                raise
        finally:
            os.close(self._lock)

    def has(self, parts: Sequence[str], content: Content) -> bool:
        """Return whether a path has this content; raises NotAFileError for a link, a pipe or a folder."""
        try:
            with self._folder.open(parts) as stream:
                return Content.of_stream(stream, most=content.size) == content
        except FileNotFoundError:
            return False

    def exists(self, parts: Sequence[str]) -> bool:
        """Return whether a path has a file; raises NotAFileError as `has` does."""
        try:
            with self._folder.open(parts):
                return True
        except FileNotFoundError:
            return False

    @contextmanager
    def staged(self, parts: Sequence[str]) -> Iterator[Path]:
        """Yield a path to write a file to, which is moved to its place when the block ends.

        Raises NotAFileError as `has` does.
        """
        with self._new() as path:
            yield path
            self._folder.place(path, parts)

    @contextmanager
    def completing(self, key: str) -> Iterator[Path]:
        """Yield a path to write a file to that is to wait for others once the block ends."""
        with self._new() as path:
            yield path
            path.replace(self.waiting(key))

    def waiting(self, key: str) -> Path:
        """Return the path of a complete file that waits for others; one that is killed leaves it to the next.

        `key` is a SHA-256 of what the file is.
        """
        return self._staging / key

    def place(self, path: Path, parts: Sequence[str]) -> None:
        """Move a file that waited to its place; raises NotAFileError as `has` does, and OSError."""
        with self._journal_lock, (self._staging / _JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(list(parts)) + "\n")
        self._folder.place(path, parts)

    def placed_before(self) -> set[tuple[str, ...]]:
        """Return the paths that `place` has filled since a process last completed the folder."""
        try:
            lines = (self._staging / _JOURNAL).read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return set()
        return {parts for parts in map(_parts, lines) if parts}

    def write(self, data: bytes, parts: Sequence[str]) -> None:
        """Write a file; raises NotAFileError as `has` does."""
        with self.staged(parts) as path:
            path.write_bytes(data)

    def remove(self, parts: Sequence[str]) -> None:
        """Delete a file, and the folders above that are empty then; what is no file stays."""
        try:
            self._folder.remove(parts)
        except NotAFileError:
            return
        for count in range(len(parts) - 1, 0, -1):
            try:
                with self._folder.parent(parts[:count]) as parent:
                    os.rmdir(parts[count - 1], dir_fd=parent)
            except (OSError, NotAFileError):
                return

    def join(self, chunks: Iterable[Sequence[str]], parts: Sequence[str]) -> None:
        """Write the contents of files of the folder into one, in their order."""
        with self.staged(parts) as path, path.open("xb") as joined:
            for chunk in chunks:
                with self._folder.open(chunk) as stream:
                    shutil.copyfileobj(stream, joined)

    @contextmanager
    def _new(self) -> Iterator[Path]:
        """Yield a path for a file that somebody moves away before the block ends."""
        path = self._staging / str(next(self._numbers))
        try:
            yield path
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _remove_remains(self) -> None:
        """Remove what a process that was killed left incomplete, and what somebody else put there."""
        if self._staging.is_symlink() or self._staging.is_file():
            self._staging.unlink()
        for path in self._staging.iterdir() if self._staging.exists() else ():
            own = path.name == _JOURNAL or _COMPLETE.fullmatch(path.name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.is_symlink() or not path.is_file() or not own:
                path.unlink()


def _parts(line: str) -> tuple[str, ...]:
    """Return the path of a line, empty for one that was written in part, or by somebody else."""
    try:
        parts = json.loads(line)
    except (ValueError, RecursionError):
        return ()
    return tuple(parts) if isinstance(parts, list) and all(map(_is_part, parts)) else ()


def _is_part(part: object) -> bool:
    return isinstance(part, str) and part not in ("", ".", "..") and not {"/", "\0"}.intersection(part)
