"""Puts a Python into the bucket: hosts that cannot reach GitHub run scripts by it.

It is one of python-build-standalone, which runs from any folder: https://gregoryszorc.com/docs/python-build-standalone
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tpuctl.cloud.storage import UPLOAD_PART, Bucket
from tpuctl.errors import ConflictError, UsageError
from tpuctl.host.worker.preparation.tar_files import TarError, TarReader
from tpuctl.host.worker.records import python_archive
from tpuctl.job_header import PYTHON

PLATFORM = "linux-x86_64-gnu"
"""Of TPU VMs."""
_HEADER = re.compile(r"[^/]+/include/python3\.[0-9]{1,2}/patchlevel\.h")
_VERSION = re.compile(rb'^#define PY_VERSION\s+"(3\.[0-9]{1,2}\.[0-9]{1,2})"', re.MULTILINE)
_MOST_BYTES = 4 << 30
"""Of what an archive unpacks to; that of Python 3.13 has 0.1 GB."""
_KIND = "application/gzip"
_GET = (
    "Get one named cpython-3.12.*-x86_64-unknown-linux-gnu-install_only.tar.gz of"
    " https://github.com/astral-sh/python-build-standalone/releases"
)


@dataclass(frozen=True)
class Archive:
    """An interpreter in a tar.gz, of one folder."""

    path: Path
    version: str
    """With three numbers."""
    sha256: str

    @property
    def object(self) -> str:
        """Its name in the bucket."""
        return python_archive(self.sha256)

    @property
    def setting(self) -> str:
        """The line for the user's own configuration that trusts it."""
        return f'python_archives = {{ "{self.version}" = "{self.sha256}" }}'


@contextmanager
def archive(source: str) -> Iterator[Archive]:
    """Give the archive of a version, which uv gets and checks, or of a file; raises UsageError."""
    path = Path(source)
    if not re.fullmatch(PYTHON, source) or path.is_file():
        yield _read(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield _read(_packed(source, Path(folder)))


def _packed(version: str, folder: Path) -> Path:
    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", ""))
    uv = shutil.which("uv", path=os.pathsep.join(folders))
    if uv is None:
        raise UsageError("There is no uv here, which gets Python.", hint=f"pip install uv. Or: {_GET}")
    place, target = folder / "installed", folder / "python.tar.gz"
    variables = {"UV_PYTHON_INSTALL_DIR": str(place), "UV_PYTHON_INSTALL_BIN": "0"}
    command = [uv, "python", "install", "--no-progress", f"cpython-{version}-{PLATFORM}"]
    answer = subprocess.run(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {path.parents[1].resolve() for path in place.glob("*/bin/python3")}
    if answer.returncode or len(found) != 1:
        reason = answer.stderr.strip().splitlines() or ["it installed none"]
        raise UsageError(f"uv could not get Python {version}: {reason[-1]}.", hint=_GET)
    with tarfile.open(target, "w:gz") as writer:
        writer.add(found.pop(), "python")
    return target


def _read(path: Path) -> Archive:
    """Return what an archive holds; raises UsageError for anything but an interpreter."""
    digest, version = hashlib.sha256(), ""
    try:
        with path.open("rb") as stream:
            for part in iter(lambda: stream.read(1 << 20), b""):
                digest.update(part)
        with gzip.open(path) as unpacked:
            reader = TarReader(cast("IO[bytes]", unpacked), _MOST_BYTES)
            for member in reader:
                content = reader.read(1 << 16) if _HEADER.fullmatch(member.name) else b""
                if found := _VERSION.search(content):
                    version = found[1].decode()
                    break
    except (gzip.BadGzipFile, zlib.error, TarError, EOFError) as error:
        raise UsageError(f"{path} is no tar.gz: {error}.", hint=_GET) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint=_GET) from error
    if not version:
        raise UsageError(f"{path} holds no Python: there is no include/python3.*/patchlevel.h.", hint=_GET)
    return Archive(path, version, digest.hexdigest())


def upload(bucket: Bucket, source: Archive, target: Bucket | None = None) -> bool:
    """Write the archive into the bucket, or into a rehearsal of it; return False where the bucket has it.

    Hosts check its hash themselves.
    """
    if bucket.stat(source.object):
        return False
    with source.path.open("rb") as stream:
        try:
            (target or bucket).add(source.object, iter(lambda: stream.read(UPLOAD_PART), b""), _KIND)
        except ConflictError:
            return False
    return True
