"""Makes folders and files that only their user can read, under any umask and beside planted links."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
