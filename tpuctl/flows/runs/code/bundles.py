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
from tpuctl.flows.runs.code.project_files import ProjectFiles

MOST_BYTES = 1_000_000_000
"""Of all files of a run's code."""


@dataclass(frozen=True)
class Bundle:
    """A tar.gz of the script and the files it needs; the same files give the same bytes."""

    data: bytes
    sha256: str
    unpacked_size: int
    """Bytes of the tar in it."""
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

    Raises UsageError for a missing file, one outside the script's folder, and a link that leads out of it.
    """
    if not script.is_file():
        raise UsageError(f"There is no file {script}.", hint="Give the path of the training script.")
    project = ProjectFiles(script)
    files = dict(file for path in (script, *include) for file in project.below(path))
    for module in imports.local_modules(script):
        files.update(project.below(module, is_package=True))
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(files, key=lambda name: name.split("/")):
                _add(archive, name, project.read(files[name]))
                if packed.tell() > MOST_BYTES:
                    raise UsageError(_TOO_LARGE.format(size=MOST_BYTES / 1e9), hint=_DATA)
        unpacked_size = packed.tell()
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest(), unpacked_size, script.name)


def _add(archive: tarfile.TarFile, name: str, content: tuple[bytes, bool]) -> None:
    data, is_executable = content
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o755 if is_executable else 0o644
    archive.addfile(entry, io.BytesIO(data))


_TOO_LARGE = "The script's files are larger than {size:.0f} GB."
_DATA = "Include less: data is uploaded with 'tpuctl data upload'."
