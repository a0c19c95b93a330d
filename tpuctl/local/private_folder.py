"""Makes folders and files that only their user can read, under any umask and beside planted links.

- Gives each path below a folder to one file, also where the disk takes two names for the same.
- Lets one process at a time write to a folder: the lock is the folder's own, and ends with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.local.confined_folder import UnsafeNameError

Fold = Callable[[str], str]
"""Returns what a disk compares of a name."""
_PROBE = "probe-\u00e9"


def fold_of(folder: Path) -> Fold:
    """Return how the disk of an empty folder compares names; a file is made there for a moment.

    The disk of macOS takes `A` for `a`, and `\u00e9` for `e` with an accent. Raises OSError, also where this
    Python writes no such names.
    """
    try:
        os.fsencode(_PROBE)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "Python's file names are ASCII here: set PYTHONUTF8=1") from error
    probe = folder / _PROBE
    probe.touch()
    try:
        folds_case = os.path.lexists(folder / _PROBE.upper())
        folds_accents = os.path.lexists(folder / unicodedata.normalize("NFD", _PROBE))
    finally:
        probe.unlink()
    return lambda name: _folded(name, case=folds_case, accents=folds_accents)


def _folded(name: str, *, case: bool, accents: bool) -> str:
    name = unicodedata.normalize("NFC", name) if accents else name
    return name.casefold() if case else name


class Places:
    """The paths of a folder that are taken."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def take(self, parts: tuple[str, ...]) -> None:
        """Give a path to a file; raises UnsafeNameError if it, or a folder on the way, is another's."""
        path = self._fold("/".join(parts))
        steps = path.split("/")
        above = {"/".join(steps[:count]) for count in range(1, len(steps))}
        if path in self._files:
            raise UnsafeNameError("has the name of another file on this disk")
        if path in self._folders:
            raise UnsafeNameError("has the name of a folder")
        if not above.isdisjoint(self._files):
            raise UnsafeNameError("has the name of a file as that of its folder")
        self._files.add(path)
        self._folders |= above


FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_missing_folders(path: Path) -> None:
    """Make a folder and its missing parents for this user alone; a folder that exists stays as it is.

    The XDG base directory specification wants the mode. Raises OSError.
    """
    try:
        path.mkdir(FOLDER_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_missing_folders(path.parent)
        path.mkdir(FOLDER_MODE, exist_ok=True)


def make_private_folder(path: Path) -> None:
    """Make a folder and its missing parents for this user alone, or take an own folder from all others.

    Raises OSError for a link, for another file, and for a folder of another user.
    """
    with _opened(path):
        pass


def create_private_file(path: Path, content: bytes) -> None:
    """Write a new file into a private folder; raises OSError, also when anything has the name already."""
    with _opened(path.parent) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(path.name, flags, FILE_MODE, dir_fd=folder), "wb") as stream:
            stream.write(content)


def read_own_file(path: Path, most: int) -> bytes:
    """Return at most so many bytes of a file of this user's; raises OSError, also for a link or another's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        return stream.read(most) or b""


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a descriptor of a private folder: what it names cannot be exchanged for another folder."""
    make_missing_folders(path)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        os.fchmod(folder, FOLDER_MODE)
        yield folder
    finally:
        os.close(folder)


WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.EBADF})
"""Errors of a file system that has no locks: its users take care themselves, as before."""


def hold(folder: Path, on_wait: Callable[[], object]) -> int:
    """Return a descriptor of a folder that holds its lock until it is closed.

    While another process holds it, this waits; `on_wait` is called first.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            os.close(descriptor)
            raise
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
