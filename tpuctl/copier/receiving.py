"""Receives files below a folder: each is written beside its place, and moved there once it is whole."""

from __future__ import annotations

import errno
import io
import os
import secrets
import tarfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from tpuctl.copier.sending import END, FOLDER, KEPT_MODE, LEFT_OUT, NOTE, PIECE, Counter, Incoming, Progress
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError

LONGEST_NAME = 4096
SLACK = (1 << 16) + 2 * PIECE
"""Bytes beside the content of a file: headers of the next, which tarfile holds, and what is read early."""
LARGEST = 1 << 62
MOST_LEFT_OUT = 100_000
PART = ".tpuctl-part"
"""In the name of what is not complete, which begins with a dot."""
FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""What fails every file: a full disk, a quota, a read-only disk."""

Refuse = Callable[[Sequence[str]], Optional[str]]
"""Returns why a name must not be written here, or None."""


def destination(path: str, *, is_folder: bool) -> Tuple[Path, str]:
    """Return the folder of a copy to `path`, and the name that its only top has there; raises OSError.

    As of cp: in the path if that is a folder, or `is_folder` says so, and the name is empty: it stays.
    """
    target = Path(path)
    is_folder = is_folder or target.is_dir()
    folder = target if is_folder else target.parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder, "" if is_folder else target.name


class Receiver:
    """Receives the files of one copy, and says what became of them.

    Raises OSError for what fails every file, EOFError for a stream that ends too soon, and for one of another
    form ValueError, TarError, or what operations on another type raise.
    """

    def __init__(
        self,
        folder: ConfinedFolder,
        name: str,
        progress: Progress = lambda *_: None,
        refuse: Refuse = lambda parts: None,
    ) -> None:
        """`name` is that of the only top one here, or empty where all keep theirs."""
        self._folder, self._name, self._refuse = folder, name, refuse
        self._counter = Counter(progress)
        self._due = self._due_bytes = 0
        self._new: Dict[str, str] = {}
        """Names of new folders, and those that they have until they are complete."""
        self.files = self.bytes = self.kept = 0
        self.left_out: List[Tuple[str, str]] = []

    def choose(self, lines: Iterator[List[Any]]) -> bytes:
        """Take the list, and return `1` for each entry that is wanted, `0` for each other."""
        wanted = bytearray()
        for kind, *words in lines:
            if len(self.left_out) > MOST_LEFT_OUT:
                raise ValueError("it leaves out too many files")
            if kind == "end":
                break
            if kind == LEFT_OUT:
                self.left_out.append((str(words[0]), str(words[1])))
            else:
                wanted += b"1" if self._is_wanted(kind == FOLDER, *words) else b"0"
        return bytes(wanted)

    def receive(self, stream: io.BufferedReader[Incoming]) -> None:
        """Take the archive; a new folder appears at its end."""
        try:
            self._take_all(stream)
        except tarfile.TarError as error:
            if stream.raw.has_ended:
                raise EOFError from error
            raise
        if self._due:
            raise EOFError
        with self._folder.parent([""]) as top:
            for name, part in self._new.items():
                with suppress(FileNotFoundError):  # it could not be made
                    os.rename(part, name, src_dir_fd=top, dst_dir_fd=top)

    def _is_wanted(self, is_folder: bool, name: str, size: int, mode: int, mtime: float) -> bool:
        parts = _parts(name)
        if not 0 <= size <= LARGEST:
            raise ValueError("it lists what is no file")
        reason = self._refuse(parts)
        if reason:
            self.left_out.append((name, reason))
            return False
        here = self._name or parts[0]
        if is_folder and len(parts) == 1 and not os.path.lexists(self._folder.path / here):
            self._new[here] = "." + here + PART
        self._counter.total += size
        if not is_folder and self._has(parts, size, mode, mtime):
            self._count(size)
            self.kept += 1
            self._counter.add(size)
            return False
        self._due += 1
        self._due_bytes += size
        return True

    def _has(self, parts: Sequence[str], size: int, mode: int, mtime: float) -> bool:
        """Whether a file is here, by what rsync compares; a float has the microseconds of a time."""
        try:
            with self._folder.open(self._here(parts)) as stream:
                status = os.fstat(stream.fileno())
        except (OSError, NotAFileError):
            return False
        is_same = (status.st_size, status.st_mode & KEPT_MODE) == (size, mode & KEPT_MODE)
        return is_same and abs(status.st_mtime - mtime) < 1e-6

    def _here(self, parts: Sequence[str]) -> List[str]:
        """Return the parts of the path that an entry has here."""
        top = self._name or parts[0]
        return [self._new.get(top, top), *parts[1:]]

    def _count(self, size: int) -> None:
        self.files += 1
        self.bytes += size

    def _take_all(self, stream: io.BufferedReader[Incoming]) -> None:
        stream.raw.allowed = SLACK
        with tarfile.open(fileobj=stream, mode="r|", bufsize=PIECE, encoding="utf-8") as archive:

            def following() -> tarfile.TarInfo:
                member = archive.next()
                archive.members.clear()  # type: ignore[attr-defined]  # it would hold each one
                if member is None:
                    raise EOFError
                if archive.pax_headers:
                    raise ValueError("it sends a header for all that follow")
                stream.raw.allowed = SLACK + (member.size if member.isreg() else 0)
                return member

            member = following()
            while END not in member.pax_headers:
                member = self._take(archive, member, following)

    def _take(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, following: Callable[[], tarfile.TarInfo]
    ) -> tarfile.TarInfo:
        """Take a folder or file, and return what follows it: only that says whether a file is whole."""
        parts = _parts(member.name)
        self._due -= 1
        self._due_bytes -= member.size
        is_plain = (member.isreg() or member.isdir()) and not member.issparse()
        if min(self._due, self._due_bytes, member.size) < 0 or not is_plain or self._refuse(parts):
            raise ValueError("it sends what was not requested")
        after = None
        try:
            if member.isdir():
                with self._folder.parent([*self._here(parts), ""]) as folder:
                    os.fchmod(folder, member.mode & KEPT_MODE | 0o700)
            else:
                with self._folder.parent(self._here(parts)) as parent, _part(parent) as (part, stream):
                    self._write(archive, member, stream)
                    after = following()
                    if NOTE in after.pax_headers:
                        raise OSError(0, after.pax_headers[NOTE])
                    os.rename(part, self._here(parts)[-1], src_dir_fd=parent, dst_dir_fd=parent)
                self._count(member.size)
        except (OSError, NotAFileError) as error:
            if getattr(error, "errno", 0) in FATAL:
                raise
            self.left_out.append((member.name, getattr(error, "strerror", None) or str(error)))
        after = after or following()
        return following() if NOTE in after.pax_headers else after

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, target: BinaryIO) -> None:
        content = archive.extractfile(member)
        assert content
        for data in iter(lambda: content.read(PIECE), b""):
            target.write(data)
            self._counter.add(len(data))
        target.flush()
        os.fchmod(target.fileno(), member.mode & KEPT_MODE)
        os.utime(target.fileno(), (member.mtime, member.mtime))


@contextmanager
def _part(parent: int) -> Iterator[Tuple[str, BinaryIO]]:
    """Yield a new file of a folder, and its name; it is deleted unless it is moved in the block."""
    name = PART + "-" + secrets.token_hex(4)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(name, flags, 0o600, dir_fd=parent), "wb") as stream:
            yield name, stream
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)


def _parts(name: str) -> List[str]:
    """Return the parts of a path below the folder; raises ValueError for one that leads elsewhere."""
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or "\0" in name or len(name) > LONGEST_NAME:
        raise ValueError("it names what is not in the folder")
    return parts
