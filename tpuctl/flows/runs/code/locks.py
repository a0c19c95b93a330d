"""Checks lock file and wheels, and names packages that come from elsewhere than the index."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.host.worker import requirements
from tpuctl.job_header import Header
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError

LARGEST = 64 << 20
"""Bytes of a lock file."""
HINT = (
    "Make it with 'uv pip compile --generate-hashes' or 'pip-compile --generate-hashes --no-emit-index-url'."
)


def files(root: Path, header: Header) -> list[Path]:
    """Return the lock file below `root` of a header, if it names one, to be packed with the script.

    Raises UsageError for a missing file and for a line that is not a requirement with a version and hashes.
    """
    if not header.tpuctl.requirements:
        return []
    path = root.resolve() / header.tpuctl.requirements
    _locked(path)
    return [path]


def locked(root: Path, header: Header) -> list[str]:
    """Return the names of the distributions in the lock file of a header; none without one."""
    return [requirement.name for path in files(root, header) for requirement in _locked(path)]


def _locked(path: Path) -> Sequence[requirements.Requirement]:
    try:
        return requirements.parse_lock(text(path, "lock file", HINT))
    except requirements.RequirementError as error:
        raise UsageError(f"The lock file {path} is wrong, {error}.", hint=HINT) from error


def text(path: Path, kind: str, hint: str = "") -> str:
    """Return the text of a file that lists packages; raises UsageError that calls it a `kind`."""
    try:
        return _content(path).decode()
    except OSError as error:
        raise UsageError(f"The {kind} {path} cannot be read: {error.strerror}.", hint=hint) from error
    except NotAFileError as error:
        raise UsageError(f"The {kind} {path} {error}.", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The {kind} {path} is not a text file.", hint=hint) from error


def _content(path: Path) -> bytes:
    """Return what a file holds, and nothing of a pipe or a device, to which a link may lead."""
    real = Path(os.path.realpath(path))
    with ConfinedFolder(real.parent) as folder, folder.open([real.name]) as stream:
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def wheelhouse(root: Path, folder: Path | None) -> str:
    """Return the name in the bundle of a folder of wheels below `root`; raises UsageError for any other."""
    if folder is None:
        return ""
    wheels, root = folder.parent.resolve() / folder.name, root.resolve()
    if not wheels.is_dir() or not any(path.suffix == ".whl" for path in wheels.iterdir()):
        raise UsageError(f"{folder} is no folder with wheels.", hint=_DOWNLOAD.format(folder=folder))
    if wheels == root or not wheels.is_relative_to(root):
        raise UsageError(
            f"{folder} is not below the script's folder {root}.",
            hint="Move it there: it travels with the code.",
        )
    if others := [path.name for path in sorted(wheels.iterdir()) if path.suffix != ".whl"]:
        raise UsageError(f"{folder} holds {others[0]}, which is no wheel.", hint="Leave wheels there only.")
    return wheels.relative_to(root).as_posix()


_DOWNLOAD = (
    "For a host with Python 3.10: pip download --dest {folder} --only-binary=:all: --python-version 3.10"
    " --platform manylinux2014_x86_64 PACKAGE"
)


def direct_references(header: Header) -> list[str]:
    """Return a sentence for each dependency that hosts install from a URL."""
    parsed = [requirements.parse(dependency) for dependency in header.dependencies]
    return [f"Hosts install {dependency.masked}" for dependency in parsed if dependency.url]
