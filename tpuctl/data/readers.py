"""Which reader takes which source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tpuctl.data.images import read_images
from tpuctl.data.source import Progress, Source
from tpuctl.errors import UsageError, nearest

Reader = Callable[[Path, Progress], Source]

READERS: dict[str, tuple[Callable[[Path], bool], Reader]] = {
    "images": (Path.is_dir, read_images),
}
"""Kind of source -> whether a path looks like one, and its reader; the first that fits is taken."""


def read_source(path: Path, progress: Progress) -> Source:
    """Read and check the source at `path` with the reader that fits; raises UsageError if none does."""
    if not path.exists():
        raise _missing(path)
    for fits, reader in READERS.values():
        if fits(path):
            return reader(path, progress)
    raise UsageError(
        f"'{path}' is not a source tpuctl can read.",
        hint="Give a folder with one folder of images for each class.",
        source=str(path),
    )


def _missing(path: Path) -> UsageError:
    siblings = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, siblings)
    return UsageError(
        f"There is no '{path}'.",
        hint=f"Did you mean {' or '.join(close)}?" if close else "Check the path.",
        source=str(path),
        nearest=close,
    )
