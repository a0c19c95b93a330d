"""Unpacks chosen members of an archive; refuses members that would leave the folder."""

from __future__ import annotations

import gzip
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from tpuctl.errors import UsageError
from tpuctl.host.worker.preparation.tar_files import FILE, FOLDER, TarError, TarReader
from tpuctl.local.object_names import UnsafeNameError, local_parts

Unpack = Callable[[Sequence[Path], Path], None]
"""Called with the files and an empty folder, which it fills with a source for `tpuctl data upload`."""

_LITTER = ("Thumbs.db", ".DS_Store", "desktop.ini")
DAMAGED = (zipfile.BadZipFile, TarError, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError)
"""Raised when an archive is read that is incomplete, or is none."""
_RATIO, _LEAST = 100, 64 << 20
"""How many times its own size an archive may unpack to, and the bytes that it always may."""
MOST_MEMBERS = 1_000_000
_BLOCK = 1 << 20
_DRIVE = re.compile(r"[A-Za-z]:")


class Budget:
    """Limits how much an archive may unpack to, however small it is itself."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._left = max(_RATIO * file.stat().st_size, _LEAST)
        self._members = MOST_MEMBERS

    def blocks(self, stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
        """Yield the content of a member in pieces; raises UsageError where it is too much in all."""
        self._members -= 1
        while block := stream.read(_BLOCK):
            self._left -= len(block)
            if self._left < 0 or self._members < 0:
                raise UsageError(
                    f"'{self._file.name}' unpacks to more than {_RATIO} times its size, or to more than "
                    f"{MOST_MEMBERS} files.",
                    hint="This is not the archive that was published.",
                    file=str(self._file),
                )
            yield block


class _Member(NamedTuple):
    """A file or link in an archive."""

    name: str
    plain: bool
    """Not a link, nor a device."""
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def copied(files: Sequence[Path], folder: Path) -> None:
    """Copy the files unchanged."""
    for file in files:
        shutil.copyfile(file, folder / file.name)


def unpacked(places: Mapping[str, str]) -> Unpack:
    """Return a way to unpack the members below some folders: `{"PetImages/Cat/": "cat/"}`."""

    def unpack(files: Sequence[Path], folder: Path) -> None:
        for file in files:
            _unpack(file, folder, places)

    return unpack


def _unpack(file: Path, folder: Path, places: Mapping[str, str]) -> None:
    """Raise UsageError for a damaged archive, one without chosen members, a member that would leave."""
    written, space = 0, Budget(file)
    try:
        for member in members(file):
            target = _target(member.name, places)
            if target is None:
                continue
            if not member.plain:
                raise _unsafe(file, member.name, "is a link or a device")
            with member.open() as stream:
                _write(stream, folder / _safe(file, member.name, target), space)
            written += 1
    except DAMAGED as error:
        raise damaged(file, str(error)) from error
    if not written:
        raise UsageError(f"'{file.name}' does not hold {', '.join(places)}.", hint="It is another archive.")


def members(file: Path) -> Iterator[_Member]:
    """Yield the files of a zip or tar archive; raises UsageError for a name that would leave the folder."""
    for member in _of_zip(file) if zipfile.is_zipfile(file) else _of_tar(file):
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\\" in member.name or _DRIVE.match(member.name):
            raise _unsafe(file, member.name, "leads out of the folder")
        yield member


def damaged(file: Path, why: str) -> UsageError:
    """Return the error for an archive that cannot be read to its end."""
    return UsageError(f"'{file.name}' is damaged ({why}).", hint="Fetch it again.", file=str(file))


def _of_zip(file: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                kind = info.external_attr >> 28  # of a Unix mode; 8 is a file, and 0 says nothing
                yield _Member(info.filename, kind in (0, 8), lambda info=info: archive.open(info))  # type: ignore[misc]


def _of_tar(file: Path) -> Iterator[_Member]:
    with file.open("rb") as packed:
        is_packed = packed.read(2) == b"\x1f\x8b"
        packed.seek(0)
        reader = TarReader(cast("IO[bytes]", gzip.GzipFile(fileobj=packed)) if is_packed else packed)
        for member in reader:
            if member.kind != FOLDER:
                yield _Member(
                    member.name, member.kind == FILE, lambda: nullcontext(cast("IO[bytes]", reader))
                )


def _target(name: str, places: Mapping[str, str]) -> str | None:
    if name.rpartition("/")[2] in _LITTER:
        return None
    for prefix, place in places.items():
        if name.removeprefix("./").startswith(prefix):
            return place + name.removeprefix("./").removeprefix(prefix)
    return None


def _safe(file: Path, name: str, target: str) -> PurePosixPath:
    """Return the path of a member below the folder; raises UsageError for one that is not safe there."""
    path = PurePosixPath(target)
    try:
        local_parts(path.as_posix())
    except UnsafeNameError as error:
        raise _unsafe(file, name, str(error)) from error
    return path


def _write(stream: IO[bytes], path: Path, space: Budget) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for block in space.blocks(stream):
            file.write(block)


def _unsafe(file: Path, name: str, why: str) -> UsageError:
    return UsageError(
        f"'{name}' in '{file.name}' {why}: nothing was unpacked.",
        hint="This is not the archive that was published.",
        file=str(file),
        member=name,
    )
