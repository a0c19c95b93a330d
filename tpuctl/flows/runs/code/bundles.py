"""Packs the code of a run into one archive, named by the hash of its content."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import imports

SKIPPED = frozenset({"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
"""Folders that --include leaves out."""


@dataclass(frozen=True)
class Bundle:
    """A tar.gz of the script and the files it needs; the same files give the same bytes."""

    data: bytes
    sha256: str
    script: str
    """The script's name in the archive."""

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each file."""
        with tarfile.open(fileobj=io.BytesIO(self.data)) as archive:
            for member in archive:
                stream = archive.extractfile(member)
                assert stream, f"{member.name} is no file"
                yield member.name, stream.read()


def pack(script: Path, include: Sequence[Path] = ()) -> Bundle:
    """Pack a script, the modules in its folder that it imports, and the files and folders of `include`.

    Raises UsageError for a missing file and for one outside the script's folder.
    """
    if not script.is_file():
        raise UsageError(f"There is no file {script}.", hint="Give the path of the training script.")
    root = script.resolve().parent
    paths = (*include, *imports.local_modules(script))
    files = sorted({script.resolve(), *(file for path in paths for file in _files(path))})
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in files:
            _add(archive, file, root)
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest(), script.name)


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise UsageError(f"There is no file or folder {path}.", hint="Correct --include.")
    if path.is_file():
        yield path.resolve()
        return
    for file in sorted(path.resolve().rglob("*")):
        if file.is_file() and not SKIPPED.intersection(file.parts):
            yield file


def _add(archive: tarfile.TarFile, file: Path, root: Path) -> None:
    if not file.is_relative_to(root):
        raise UsageError(
            f"{file} is outside the script's folder {root}.",
            hint="Move it beside the script, or link it there.",
        )
    data = file.read_bytes()
    entry = tarfile.TarInfo(file.relative_to(root).as_posix())
    entry.size = len(data)
    entry.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
    archive.addfile(entry, io.BytesIO(data))
