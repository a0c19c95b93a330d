"""Chooses the reader of a source: by the names of its files, or by --format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tpuctl.data.archives.only_archive import archive_tree
from tpuctl.data.archives.opened import SUFFIXES
from tpuctl.data.files.listing import unreadable
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
from tpuctl.data.sources.annotated import coco, masks, metadata, webdataset
from tpuctl.data.sources.annotated.fields import PICTURES
from tpuctl.data.sources.annotated.sound_folders import read_sounds
from tpuctl.data.sources.annotated.sounds import SOUNDS
from tpuctl.data.sources.huggingface import saved
from tpuctl.data.trees.local import LocalTree
from tpuctl.data.trees.tree import Entry, Tree
from tpuctl.errors import UsageError, nearest

_MOST_NAMES, _MOST_OF_ENDING = 1000, 20
"""Names from which the kind of a source is inferred, and those of each folder with the same ending."""


@dataclass(frozen=True)
class SourceNames:
    """The names of a source's files, from which its kind is inferred."""

    folder: bool
    names: tuple[str, ...]
    """The file's own name; of a folder, the paths of some files below it, in no order."""

    def has(self, *suffixes: str) -> bool:
        """Tell whether any of the names ends so, in small or capital letters."""
        return any(name.lower().endswith(suffixes) for name in self.names)

    def any(self, pattern: re.Pattern[str]) -> bool:
        """Tell whether there is a file of such a name."""
        return any(pattern.search(name.lower()) for name in self.names)

    def match(self, pattern: re.Pattern[str]) -> bool:
        """Tell whether there are files of such names, and no images: beside images, a table is an extra."""
        return any(pattern.search(name.lower()) for name in self.names) and not self.has(*PICTURES)


class Reader(NamedTuple):
    """One kind of source."""

    fits: Callable[[SourceNames], bool]
    read: Callable[[Tree, Options, ScanProgress], Source]
    description: str
    """For the user, where no kind fits: `a folder with one folder of images for each class`."""


READERS: dict[str, Reader] = {
    "tfds": Reader(
        lambda names: names.has(tfds_folder.INFO) and names.has(tfds_folder.FEATURES),
        tfds_folder.read_tfds,
        "a folder that TFDS wrote",
    ),
    "saved": Reader(
        lambda names: names.folder and names.has(saved.STATE) and names.has(".arrow"),
        saved.read_saved,
        "a folder of save_to_disk (datasets of Hugging Face)",
    ),
    "webdataset": Reader(
        lambda names: (
            names.folder and (names.match(webdataset.SHARDS) or webdataset.shows_samples(names.names))
        ),
        webdataset.read_webdataset,
        "tar shards of WebDataset",
    ),
    "metadata": Reader(
        lambda names: names.folder and names.any(metadata.FILES),
        metadata.read_metadata,
        "pictures with a metadata.jsonl or metadata.csv",
    ),
    "coco": Reader(
        lambda names: names.folder and names.any(coco.FILES) and names.has(*PICTURES),
        coco.read_coco,
        "pictures with the JSON of COCO instances",
    ),
    "masks": Reader(
        lambda names: names.folder and masks.shows_masks(names.names),
        masks.read_masks,
        "pictures with a mask beside each",
    ),
    "tfrecord": Reader(
        lambda names: names.match(tfrecord_files.FILES),
        tfrecord_files.read_tfrecords,
        "TFRecords of Examples",
    ),
    "parquet": Reader(
        lambda names: names.match(parquet_files.FILES), parquet_files.read_parquet, "Parquet files"
    ),
    "jsonl": Reader(
        lambda names: names.match(json_lines.FILES), json_lines.read_json_lines, "JSON Lines (.jsonl)"
    ),
    "csv": Reader(lambda names: names.match(csv_files.FILES), csv_files.read_csv, "CSV or TSV with a header"),
    "numpy": Reader(
        lambda names: names.match(numpy_files.FILES), numpy_files.read_numpy, "NumPy arrays (.npy, .npz)"
    ),
    "idx": Reader(lambda names: names.match(idx_files.FILES), idx_files.read_idx, "IDX files, as MNIST's"),
    "text": Reader(
        lambda names: names.folder and names.has(*text_folders.SUFFIXES) and not names.has(*PICTURES),
        text_folders.read_text_files,
        "a folder with one folder of texts (.txt) for each class",
    ),
    "audio": Reader(
        lambda names: names.folder and names.has(*SOUNDS) and not names.has(*PICTURES),
        read_sounds,
        "a folder with one folder of sounds (.wav, .flac) for each class",
    ),
    "images": Reader(
        lambda names: names.folder,
        image_folders.read_images,
        "a folder with one folder of images for each class",
    ),
}
"""Kind of source -> its reader; the first that fits is used, the most specific first."""


def open_source(
    source: Path | Tree, kind: str | None, options: Options, progress: ScanProgress, headers: bytes = b""
) -> Source:
    """Return the source at a path of this disk, or in a tree, listed by its reader; raises UsageError.

    `headers` are `Source.headers` of the same source, where it was listed before.
    """
    tree = _local(source) if isinstance(source, Path) else source
    if tree.only.lower().endswith(SUFFIXES):
        tree = archive_tree(tree, progress)
    if kind is not None:
        return _read(_named(kind), tree, options, progress, headers)
    names = _names(tree)
    for reader in READERS.values():
        if reader.fits(names):
            return _read(reader, tree, options, progress, headers)
    raise UsageError(
        f"'{tree}' is not a source tpuctl can read.",
        hint=f"Give {', or '.join(reader.description for reader in READERS.values())}.",
        source=str(tree),
    )


def _read(reader: Reader, tree: Tree, options: Options, progress: ScanProgress, headers: bytes) -> Source:
    if headers and reader is READERS["images"]:
        return image_folders.read_images(tree, options, progress, headers)
    return reader.read(tree, options, progress)


def _local(path: Path) -> LocalTree:
    if not path.exists():
        raise _missing(path)
    return LocalTree.at(path)


def _named(kind: str) -> Reader:
    if kind not in READERS:
        raise UsageError(
            f"There is no kind of source called '{kind}'.", hint=f"One of {', '.join(READERS)}.", kind=kind
        )
    return READERS[kind]


def _names(tree: Tree) -> SourceNames:
    if tree.only:
        return SourceNames(False, (tree.only,))
    names: list[str] = []
    waiting, scanned = [""], 0
    while waiting and len(names) < _MOST_NAMES and scanned < _MOST_NAMES:  # links may lead in circles
        folder, scanned = waiting.pop(), scanned + 1
        endings: Counter[str] = Counter()
        for entry in _entries(tree, folder):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.kind == "folder":
                waiting.append(name)
                continue
            ending = entry.name.rpartition(".")[2].lower()
            endings[ending] += 1
            if endings[ending] <= _MOST_OF_ENDING:
                names.append(name)
    return SourceNames(True, tuple(names))


def _entries(tree: Tree, folder: str) -> list[Entry]:
    try:
        return tree.scan(folder)
    except OSError as error:
        raise unreadable(folder or str(tree), error) from error


def _missing(path: Path) -> UsageError:
    siblings = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, siblings)
    return UsageError(
        f"There is no '{path}'.",
        hint=f"Did you mean {' or '.join(close)}?" if close else "Check the path.",
        source=str(path),
        nearest=close,
    )
