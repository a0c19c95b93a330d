"""Which reader takes which source."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, Source
from tpuctl.data.sources import (
    csv_files,
    idx_files,
    image_folders,
    json_lines,
    numpy_files,
    parquet_files,
    text_folders,
    tfds_folder,
    tfrecord_files,
)
from tpuctl.errors import UsageError, nearest

_IMAGES = (".png", ".jpg", ".jpeg")
_LOOKED_AT = 1000
"""Names in a folder that are looked at to tell what it is."""


@dataclass(frozen=True)
class Look:
    """What the names alone say of a source."""

    path: Path
    folder: bool
    names: tuple[str, ...]
    """The file's own name; of a folder, the paths of some files below it, in no order."""

    def has(self, *suffixes: str) -> bool:
        """Tell whether any of the names ends so, in small or capital letters."""
        return any(name.lower().endswith(suffixes) for name in self.names)

    def found(self, name: re.Pattern[str]) -> bool:
        """Tell whether there are files of such names, and no pictures: beside those, a table is an extra."""
        return any(name.search(one.lower()) for one in self.names) and not self.has(*_IMAGES)


class Reader(NamedTuple):
    """One kind of source."""

    fits: Callable[[Look], bool]
    read: Callable[[Path, Options, ScanProgress], Source]
    what: str
    """For the user, where no kind fits: `a folder with one folder of images for each class`."""


READERS: dict[str, Reader] = {
    "tfds": Reader(
        lambda look: look.has(tfds_folder.INFO) and look.has(tfds_folder.FEATURES),
        tfds_folder.read_tfds,
        "a folder that TFDS wrote",
    ),
    "tfrecord": Reader(
        lambda look: look.found(tfrecord_files.FILES), tfrecord_files.read_tfrecords, "TFRecords of Examples"
    ),
    "parquet": Reader(
        lambda look: look.found(parquet_files.FILES), parquet_files.read_parquet, "Parquet files"
    ),
    "jsonl": Reader(
        lambda look: look.found(json_lines.FILES), json_lines.read_json_lines, "JSON Lines (.jsonl)"
    ),
    "csv": Reader(lambda look: look.found(csv_files.FILES), csv_files.read_csv, "CSV or TSV with a header"),
    "numpy": Reader(
        lambda look: look.found(numpy_files.FILES), numpy_files.read_numpy, "NumPy arrays (.npy, .npz)"
    ),
    "idx": Reader(lambda look: look.found(idx_files.FILES), idx_files.read_idx, "IDX files, as MNIST's"),
    "text": Reader(
        lambda look: look.folder and look.has(*text_folders.SUFFIXES) and not look.has(*_IMAGES),
        text_folders.read_text_files,
        "a folder with one folder of texts (.txt) for each class",
    ),
    "images": Reader(
        lambda look: look.folder,
        image_folders.read_images,
        "a folder with one folder of images for each class",
    ),
}
"""Kind of source -> its reader; the first that fits is taken, the most particular first."""


def open_source(path: Path, kind: str | None, options: Options, progress: ScanProgress) -> Source:
    """Return the source at `path`, listed by its reader; raises UsageError if none fits."""
    if not path.exists():
        raise _missing(path)
    if kind is not None:
        return _named(kind).read(path, options, progress)
    look = _look(path)
    for reader in READERS.values():
        if reader.fits(look):
            return reader.read(path, options, progress)
    raise UsageError(
        f"'{path}' is not a source tpuctl can read.",
        hint=f"Give {', or '.join(reader.what for reader in READERS.values())}.",
        source=str(path),
    )


def _named(kind: str) -> Reader:
    if kind not in READERS:
        raise UsageError(
            f"There is no kind of source called '{kind}'.", hint=f"One of {', '.join(READERS)}.", kind=kind
        )
    return READERS[kind]


def _look(path: Path) -> Look:
    if not path.is_dir():
        return Look(path, False, (path.name,))
    names: list[str] = []
    waiting = [path]
    while waiting and len(names) < _LOOKED_AT:
        for one in sorted(waiting.pop().iterdir())[:_LOOKED_AT]:
            if one.name.startswith("."):
                continue
            if one.is_dir() and not one.is_symlink():
                waiting.append(one)
            else:
                names.append(one.relative_to(path).as_posix())
    return Look(path, True, tuple(names))


def _missing(path: Path) -> UsageError:
    siblings = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, siblings)
    return UsageError(
        f"There is no '{path}'.",
        hint=f"Did you mean {' or '.join(close)}?" if close else "Check the path.",
        source=str(path),
        nearest=close,
    )
