"""Turns names from elsewhere into paths below one folder, and places files there: no link leads elsewhere.

Whoever writes to a bucket names its objects. A path that is accepted stays in the folder on every system, and
is none that git or another program executes or obeys when somebody works in the folder.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LONGEST_PART = 250
"""Bytes of a file's name in UTF-8: the file systems allow 255, some of them also for a name with a suffix."""
_CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of what no name of a file needs: control characters, halves of pairs, line ends."""
_DRIVE = re.compile(r"[A-Za-z]:")
_IGNORED = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Code points that HFS+ leaves out of names, as in git's utf8.c."""
_REPOSITORY = re.compile(r"(\.(git|hg|svn|bzr|jj)|git~\d+)[ .]*(:.*)?")
"""Folders of version control, also as NTFS reads their names (git's is_ntfs_dotgit): CVE-2014-9390."""
_HEAD = re.compile(r"head[ .]*(:.*)?")
"""A file that makes the folder around it a repository for git, which obeys the `config` beside it."""
_SETTINGS = re.compile(r"(tpuctl\.toml|tpuctl~\d+\.tom)[ .]*(:.*)?")
"""tpuctl's own settings, which it takes from the folder where it is called."""


class UnsafeNameError(ValueError):
    """A name must not be written to this disk; the text says why and fits after the name."""


def local_parts(name: str, *, may_be_hidden: bool = False) -> tuple[str, ...]:
    """Return the parts of the path that a name such as `outputs/model.h5` has below a folder.

    Raises UnsafeNameError.
    """
    parts = tuple(name.split("/"))
    if {"", ".", ".."}.intersection(parts):
        raise UnsafeNameError("leads out of the folder")
    if "\\" in name or _DRIVE.match(name):
        raise UnsafeNameError("is a path of another system")
    if any(unicodedata.category(character) in _CONTROL for character in name):
        raise UnsafeNameError("has control characters")
    if parts[0].startswith(".") and not may_be_hidden:
        raise UnsafeNameError("is a hidden file or folder")
    for part in parts:
        _check_part(part)
    if _HEAD.fullmatch(_plain(parts[-1])):
        raise UnsafeNameError("would make the folder a git repository")
    return parts


def _check_part(part: str) -> None:
    if len(part.encode()) > LONGEST_PART:
        raise UnsafeNameError("is too long for a file")
    plain = _plain(part)
    if _REPOSITORY.fullmatch(plain):
        raise UnsafeNameError("is a folder of version control")
    if _SETTINGS.fullmatch(plain):
        raise UnsafeNameError("is a file of settings for tpuctl")


def _plain(part: str) -> str:
    """Return a name as the least exact of all file systems compares it."""
    return unicodedata.normalize("NFKC", part.translate(_IGNORED)).casefold()


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


_IN_THE_WAY = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR})
"""A link where none is followed (FreeBSD: EMLINK), a file as folder, a folder as file."""


class NotAFileError(Exception):
    """Something else is where a file is expected, such as a link or a pipe; the text fits after a name."""

    def __init__(self) -> None:
        super().__init__("has something else in its place: a link, a folder, or no file at all")


class ConfinedFolder:
    """A folder that is held open: names are looked up in it one part at a time, and links are refused.

    The folder's own path may hold links.
    """

    def __init__(self, path: Path, *, follows_links: bool = False) -> None:
        """Open the folder; raises OSError. `follows_links`: folders below it may be links."""
        self.path = path
        self._flags = _FOLDER if follows_links else _FOLDER | _NO_LINK
        self._descriptor = os.open(path, _FOLDER)

    def __enter__(self) -> ConfinedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @contextmanager
    def open(self, parts: Sequence[str]) -> Iterator[BinaryIO]:
        """Open a file for reading; never waits for a pipe. Raises NotAFileError and OSError."""
        with _translated(), self._parent(parts) as parent:
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                raise NotAFileError
            descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=parent)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotAFileError
            yield stream

    def place(self, file: Path, parts: Sequence[str]) -> None:
        """Move a file of the same disk to a place below the folder, where it replaces a file.

        Folders on the way are made. Raises NotAFileError if something else than a file is at the place, a
        link too, and OSError.
        """
        with _translated(), self._parent(parts, make=True) as parent:
            existing = _kind(parts[-1], parent)
            if existing and not stat.S_ISREG(existing):
                raise NotAFileError
            os.rename(file, parts[-1], dst_dir_fd=parent)

    def remove(self, parts: Sequence[str]) -> None:
        """Delete a file below the folder, if it exists. Raises NotAFileError as `place` does, and OSError."""
        try:
            with _translated(), self._parent(parts) as parent:
                existing = _kind(parts[-1], parent)
                if existing and not stat.S_ISREG(existing):
                    raise NotAFileError
                os.unlink(parts[-1], dir_fd=parent)
        except FileNotFoundError:
            pass

    @contextmanager
    def parent(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield a descriptor of the folder that holds the last part; folders on the way are made.

        Raises NotAFileError and OSError, as for an OSError inside the block.
        """
        with _translated(), self._parent(parts, make=True) as parent:
            yield parent

    @contextmanager
    def _parent(self, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the folder that holds the last part."""
        descriptor = os.dup(self._descriptor)
        try:
            for part in parts[:-1]:
                if make and _kind(part, descriptor) is None:
                    _make_folder(part, descriptor)
                inner = os.open(part, self._flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def read_file(folder: Path, name: str, most: int) -> bytes:
    """Return at most so many bytes of a file directly in a folder, where anybody may have put something.

    Raises NotAFileError for a link, a pipe or a folder, and OSError, also without the file.
    """
    with ConfinedFolder(folder) as confined, confined.open((name,)) as stream:
        return stream.read(most)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise NotAFileError from error
        raise


def _kind(name: str, parent: int) -> int | None:
    """Return the mode of what has a name in a folder, or None."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        pass  # made by another thread in this moment
