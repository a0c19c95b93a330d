"""Receives files below a folder: each is completed beside its place, verified, and moved there."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

from tpuctl.copier.frames import Frames, ProtocolError, Record
from tpuctl.copier.sending import begins_with
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError

PIECE = 1 << 18
BATCH = 500
MOST_ENTRIES = 5_000_000
LARGEST_NUMBER = (1 << 63) - 1
"""Of a size, and of a time in nanoseconds."""
KEPT_MODE = 0o755
"""Bits of a mode that are kept: who else uses this machine must not be able to change the file."""
PART = ".tpuctl-part"
"""End of the name of what is not complete; its name begins with a dot."""
LOCK_PATIENCE = 10.0
"""Seconds that a copy waits, all files together, for an earlier one that writes the same files."""
LOCK_INTERVAL = 0.1
FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""What fails every file: a full disk, a quota, a read-only disk."""

Refuse = Callable[[Sequence[str]], Optional[str]]
"""Returns why a name must not be written here, or None."""


class _Open:
    """A file that is being received."""

    def __init__(self, descriptor: int, content: Any, *, is_part: bool) -> None:
        self.descriptor = descriptor
        self.content = content
        self.is_part = is_part


class Receiver:
    """Receives one list of files; `progress` gets the bytes of each step."""

    def __init__(
        self, frames: Frames, folder: ConfinedFolder, refuse: Refuse, progress: Callable[[int], None]
    ) -> None:
        self._frames = frames
        self._folder = folder
        self._refuse = refuse
        self._progress = progress
        self._entries: list[Record] = []
        self._failed: list[tuple[str, str]] = []
        self._had: dict[int, tuple[bool, int, Any]] = {}
        self.names: dict[str, str] = {}
        """The names that tops have here."""
        self._counts = {"files": 0, "bytes": 0, "kept": 0}
        self._fatal = ""
        self._patience = LOCK_PATIENCE

    def read_list(self) -> list[Record]:
        """Return the entries that the other end lists."""
        while True:
            record = self._frames.receive_record()
            if "listed" in record:
                return self._entries
            self._entries += [_checked(entry) for entry in record["entries"]]
            if len(self._entries) > MOST_ENTRIES:
                raise ProtocolError("the other end lists too many files")

    def receive(self) -> Record:
        """Take the files that are listed, and return what became of them."""
        self._tell()
        while True:
            record = self._frames.receive_record()
            if "sent" in record:
                break
            self._take(record["begin"], record["offset"]) if "begin" in record else self._note(record)
        self._finish_folders()
        return {"done": True, **self._counts, "failed": self._failed, "fatal": self._fatal}

    def conclude(self, result: Record) -> None:
        """Tell the other end what became of the files."""
        self._frames.send(result)
        self._frames.flush()

    def _tell(self) -> None:
        """Say which files are taken, and which bytes of them are here already."""
        had: list[tuple[int, int, str]] = []
        for index, entry in enumerate(self._entries):
            reason = self._refuse(entry["path"])
            if reason:
                self._fail(index, reason)
            elif entry["kind"] == "file":
                had.append((index, *self._look(index, entry)))
            if len(had) >= BATCH:
                self._frames.send({"had": had})
                had = []
        self._frames.send({"had": had})
        self._frames.send({"go": True})
        self._frames.flush()

    def _look(self, index: int, entry: Record) -> tuple[int, str]:
        """Return the size and the digest of what is here of a file: itself if it is complete, or a part."""
        parts = self._place(entry)
        for name, is_part in ((parts[-1], False), (part_name(parts[-1]), True)):
            try:
                with self._folder.open([*parts[:-1], name]) as stream:
                    size = os.fstat(stream.fileno()).st_size
                    if not size or (size > entry["size"] if is_part else size != entry["size"]):
                        continue
                    content = hashlib.sha256()
                    while True:
                        data = stream.read(PIECE)
                        if not data:
                            break
                        content.update(data)
            except (OSError, NotAFileError):
                continue
            self._had[index] = is_part, size, content
            return size, content.hexdigest()
        self._had[index] = True, 0, None
        return 0, ""

    def _place(self, entry: Record) -> list[str]:
        """Return the parts of the path that an entry has here."""
        top, *rest = entry["path"]
        return [self.names.get(top, top), *rest]

    def _take(self, index: int, offset: int) -> None:
        """Receive one file."""
        if index not in self._had or offset not in (0, self._had[index][1]):
            raise ProtocolError("the other end sends a file that was not requested")
        entry = self._entries[index]
        file: _Open | None = None
        try:
            if not self._fatal:
                file = self._open(index, entry, offset)
        except (OSError, NotAFileError) as error:
            self._fail(index, _reason(error), error)
        self._progress(offset)
        with ExitStack() as stack:
            if file:
                stack.callback(os.close, file.descriptor)
            file, end = self._take_pieces(index, file)
            if file:
                self._close(index, file, end)

    def _take_pieces(self, index: int, file: _Open | None) -> tuple[_Open | None, Record]:
        """Write what comes of a file, and return it with the record of its end; None if that fails."""
        while True:
            record = self._frames.receive()
            if isinstance(record, dict):
                return file, record
            self._progress(len(record))
            if file:
                try:
                    _write(file, record)
                except OSError as error:
                    self._discard(index, file)
                    self._fail(index, _reason(error), error)
                    file = None

    def _open(self, index: int, entry: Record, offset: int) -> _Open:
        parts = self._place(entry)
        is_part, _, content = self._had.pop(index)
        name = part_name(parts[-1]) if is_part or not offset else parts[-1]
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._folder.parent(parts) as parent:
            descriptor = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            if self._lock(descriptor):  # the earlier copy may have written, moved or deleted it meanwhile
                with self._folder.parent(parts) as parent:
                    _verify(descriptor, os.stat(name, dir_fd=parent), offset, content)
            if not offset:
                content = hashlib.sha256()
            os.ftruncate(descriptor, offset)
            os.lseek(descriptor, offset, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        return _Open(descriptor, content, is_part=is_part or not offset)

    def _lock(self, descriptor: int) -> bool:
        """Lock a file, and return whether that had to wait; raises BlockingIOError after a time.

        The program of a copy that was killed needs a moment to end.
        """
        has_waited = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return has_waited
            except BlockingIOError:
                if self._patience <= 0:
                    raise
            self._patience -= LOCK_INTERVAL
            time.sleep(LOCK_INTERVAL)
            has_waited = True

    def _close(self, index: int, file: _Open, end: Record) -> None:
        """Move a complete file to its place."""
        entry = self._entries[index]
        parts = self._place(entry)
        try:
            if "sum" not in end:
                self._fail(index, str(end.get("failed", "it was not sent")))
            elif end["sum"] != file.content.hexdigest():
                self._discard(index, file)
                self._fail(index, "it arrived with another checksum")
            else:
                os.fchmod(file.descriptor, entry["mode"])
                os.utime(file.descriptor, ns=(entry["mtime"], entry["mtime"]))
                if file.is_part:
                    with self._folder.parent(parts) as parent:
                        os.rename(part_name(parts[-1]), parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
                self._counts["files"] += 1
                self._counts["bytes"] += entry["size"]
                self._counts["kept"] += not file.is_part
        except (OSError, NotAFileError) as error:
            self._fail(index, _reason(error), error)

    def _discard(self, index: int, file: _Open) -> None:
        """Delete what is not complete: a full disk needs the room."""
        parts = self._place(self._entries[index])
        try:
            if file.is_part:
                with self._folder.parent(parts) as parent:
                    os.unlink(part_name(parts[-1]), dir_fd=parent)
        except (OSError, NotAFileError):
            pass

    def _note(self, record: Record) -> None:
        """Note a file that the other end could not open."""
        if "failed" in record:
            self._fail(int(record["file"]), str(record["failed"]))

    def _finish_folders(self) -> None:
        """Make folders that hold no file, and set the modes of all."""
        for index in range(len(self._entries) - 1, -1, -1):
            entry = self._entries[index]
            if entry["kind"] != "folder" or self._fatal or self._refuse(entry["path"]):
                continue
            try:
                with self._folder.parent([*self._place(entry), ""]) as folder:
                    os.fchmod(folder, entry["mode"] | stat.S_IRWXU)
            except (OSError, NotAFileError) as error:
                self._fail(index, _reason(error), error)

    def _fail(self, index: int, reason: str, error: BaseException | None = None) -> None:
        if isinstance(error, OSError) and error.errno in FATAL:
            self._stop(reason)
        self._failed.append(("/".join(self._entries[index]["path"]), reason))

    def _stop(self, reason: str) -> None:
        if not self._fatal:
            self._fatal = reason
            self._frames.send({"stop": reason})
            self._frames.flush()


def part_name(name: str) -> str:
    """Return the name of a file that is not complete, which is short enough for a disk."""
    if len(os.fsencode(name)) > 230:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return "." + name + PART


def destination(path: str, *, is_folder: bool) -> tuple[Path, str]:
    """Return the folder of a copy to `path`, and the name that its only top has there; raises OSError.

    As of cp: in the path if that is a folder, or `is_folder` says so, and the name is empty: it stays.
    """
    target = Path(path)
    if is_folder or target.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return target, ""
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.parent, target.name


def receive_into(receiver: Receiver, folder: ConfinedFolder, name: str) -> Record:
    """Receive files; `name` is that of the only top one here, or empty where all keep theirs.

    A new folder appears when it is complete. Raises OSError.
    """
    entries = receiver.read_list()
    tops = {entry["path"][0]: entry["kind"] for entry in reversed(entries)}
    names = {top: name or top for top in tops}
    folders = [top for top, kind in tops.items() if kind == "folder"]
    new = [top for top in folders if not os.path.lexists(folder.path / names[top])]
    receiver.names = {**names, **{top: part_name(names[top]) for top in new}}
    result = receiver.receive()
    for top in new if not result["fatal"] else ():
        if os.path.lexists(folder.path / receiver.names[top]):
            os.rename(folder.path / receiver.names[top], folder.path / names[top])
    receiver.conclude(result)
    return result


def _write(file: _Open, data: bytes) -> None:
    if not file.is_part:  # what is complete here gets no more bytes in its place
        raise OSError(0, "it changed while it was copied")
    view = memoryview(data)
    while view:
        view = view[os.write(file.descriptor, view) :]
    file.content.update(data)


def _verify(descriptor: int, status: os.stat_result, offset: int, content: Any) -> None:
    """Raise BlockingIOError unless a file is still the one at its name, and begins as it did."""
    is_same = os.path.samestat(os.fstat(descriptor), status)
    with open(os.dup(descriptor), "rb") as stream:
        stream.seek(0)
        if not is_same or (offset and not begins_with(stream, hashlib.sha256(), offset, content.hexdigest())):
            raise BlockingIOError


def _reason(error: BaseException) -> str:
    if isinstance(error, BlockingIOError):
        return "another copy writes it at the moment"
    return getattr(error, "strerror", None) or str(error)


def _checked(entry: Any) -> Record:
    """Return an entry that has the form of one; raises ProtocolError."""
    try:
        path = [str(part) for part in entry["path"]]
        checked = {
            "kind": {"file": "file", "folder": "folder"}[entry["kind"]],
            "path": path,
            "size": _number(entry["size"]),
            "mode": _number(entry["mode"]) & KEPT_MODE,
            "mtime": _number(entry["mtime"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError("the other end lists what is no file") from error
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in path):
        raise ProtocolError("the other end lists a path that leads out of the folder")
    if not path:
        raise ProtocolError("the other end lists a file without a name")
    return checked


def _number(value: Any) -> int:
    """Return a number that a disk can have; raises ValueError for any other, such as infinity."""
    if not isinstance(value, int) or abs(value) > LARGEST_NUMBER:
        raise ValueError(value)
    return value
