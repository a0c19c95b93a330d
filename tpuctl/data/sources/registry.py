"""Chooses the reader of a source, by the names of its files or by --format, and imports it alone.

- Decides how many rows of a Parquet file are held in memory at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuctl.data.archives.members import SUFFIXES
from tpuctl.data.files.listing import unreadable
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, Source
from tpuctl.data.sources import names as files
from tpuctl.data.sources.names import PICTURES, SOUNDS, shows_masks, shows_samples
from tpuctl.data.tables.arrow_values import array_texts
from tpuctl.data.tables.parquet import Footer, Group
from tpuctl.data.trees.local import LocalTree, PatternTree, name_pattern
from tpuctl.data.trees.tree import Entry, Tree
from tpuctl.errors import UsageError, nearest

if TYPE_CHECKING:
    import pyarrow


_BATCH_BYTES, _LEAST_ROWS, _MOST_ROWS = 2 << 20, 16, 8192
"""Size of a batch of rows in memory, about."""
_MOST_BYTES, _DICTIONARY_ROWS = 1 << 26, 256
"""Size of a batch at most, unless one row is larger; its rows where the length of a text is not known."""

Open = Callable[[list[str]], Any]
"""Opens the file so that these columns are read as their dictionaries."""


def cautious_rows(footer: Footer) -> int:
    """Return a number of rows that surely fit in memory.

    A dictionary may hold one long text for all rows: what a row takes is then not in the metadata, only
    that no text is longer than its column's chunk.
    """
    longest = max((sum(_texts_of(group)) for group in footer.groups), default=0)
    rows = _usual_rows(footer)
    if longest <= 0:
        return rows
    return min(rows, _DICTIONARY_ROWS, max(_MOST_BYTES // longest, 1))


def batch_rows(footer: Footer, open_file: Open) -> int:
    """Return as many rows as fit in memory, which is seen from the longest text of each dictionary."""
    rows = _usual_rows(footer)
    if cautious_rows(footer) == rows:
        return rows
    names = sorted({chunk.path for chunk in footer.dictionaries})
    if any("." in name for name in names):  # in a list or a struct: not looked at
        return cautious_rows(footer)
    longest = 1
    with open_file(names) as file:
        for group in range(len(footer.groups)):
            for batch in islice(file.iter_batches(1, row_groups=[group], columns=names), 1):
                longest = max(longest, sum(map(longest_text, batch.columns)))
    return min(rows, max(_MOST_BYTES // longest, 1))


def _texts_of(group: Group) -> Iterator[int]:
    """Yield the most bytes that the texts of a row take in each column with a dictionary."""
    for chunk in group.chunks:
        if chunk.has_dictionary and chunk.is_text:
            yield chunk.size * max(chunk.values // max(group.rows, 1), 1)


def longest_text(column: pyarrow.Array) -> int:
    """Return the bytes of the longest text of a column, or of its dictionary; very many for another one."""
    texts = array_texts(getattr(column, "dictionary", column))
    return _MOST_BYTES if texts is None else int(texts.sizes.max(initial=0))


def _usual_rows(footer: Footer) -> int:
    size = sum(group.size for group in footer.groups)
    row_size = max(size // max(footer.rows, 1), 1)
    widest = max((sum(chunk.row for chunk in group.chunks) for group in footer.groups), default=0)
    most = max(_MOST_BYTES // max(widest, 1), 1)
    return min(max(_BATCH_BYTES // row_size, _LEAST_ROWS), _MOST_ROWS, most)


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

    def has_table_of_media(self) -> bool:
        """Tell whether there is a metadata.parquet, and files that it may name."""
        return self.any(files.METADATA_PARQUET) and self.has(*PICTURES, *SOUNDS)

    def match(self, pattern: re.Pattern[str]) -> bool:
        """Tell whether there are files of such names, and no images: beside images, a table is an extra."""
        return self.any(pattern) and not self.has(*PICTURES)


class Reader(NamedTuple):
    """One kind of source."""

    fits: Callable[[SourceNames], bool]
    place: str
    """Module below `tpuctl.data.sources`, and function."""
    description: str
    """For the user, where no kind fits: `a folder with one folder of images for each class`."""
    pattern: re.Pattern[str] | None = None
    """The names of its files, where one of them shows the kind."""

    def load(self) -> Callable[..., Source]:
        """Import the function: its arguments are a tree, `Options` and `ScanProgress`."""
        module, _, function = self.place.rpartition(".")
        read: Callable[..., Source] = getattr(import_module(f"{__package__}.{module}"), function)
        return read


def _by_name(pattern: re.Pattern[str], place: str, description: str) -> Reader:
    """Return the reader of files of such names."""
    return Reader(lambda names: names.match(pattern), place, description, pattern)


READERS: dict[str, Reader] = {
    "tfds": Reader(
        lambda names: names.has(files.TFDS_INFO) and names.has(files.TFDS_FEATURES),
        "tfds_folder.read_tfds",
        "a folder that TFDS wrote",
    ),
    "saved": Reader(
        lambda names: names.folder and names.has(files.SAVED_STATE) and names.has(".arrow"),
        "huggingface.saved.read_saved",
        "a folder of save_to_disk (datasets of Hugging Face)",
    ),
    "webdataset": Reader(
        lambda names: names.folder and (names.match(files.TAR_SHARDS) or shows_samples(names.names)),
        "annotated.webdataset.read_webdataset",
        "tar shards of WebDataset",
    ),
    "metadata": Reader(
        lambda names: names.folder and (names.any(files.METADATA) or names.has_table_of_media()),
        "annotated.metadata.read_metadata",
        "pictures with a metadata.jsonl, metadata.csv or metadata.parquet",
    ),
    "coco": Reader(
        lambda names: names.folder and names.any(files.COCO) and names.has(*PICTURES),
        "annotated.coco.read_coco",
        "pictures with the JSON of COCO instances",
    ),
    "masks": Reader(
        lambda names: names.folder and shows_masks(names.names),
        "annotated.masks.read_masks",
        "pictures with a mask beside each",
    ),
    "tfrecord": _by_name(files.TFRECORDS, "tfrecord_files.read_tfrecords", "TFRecords of Examples"),
    "parquet": _by_name(files.PARQUET, "parquet_files.read_parquet", "Parquet files"),
    "jsonl": _by_name(files.JSON_LINES, "json_lines.read_json_lines", "JSON Lines (.jsonl)"),
    "csv": _by_name(files.CSV, "csv_files.read_csv", "CSV or TSV with a header"),
    "numpy": _by_name(files.NUMPY, "numpy_files.read_numpy", "NumPy arrays (.npy, .npz)"),
    "idx": _by_name(files.IDX, "idx_files.read_idx", "IDX files, as MNIST's"),
    "text": Reader(
        lambda names: names.folder and names.has(*files.TEXT_FILES) and not names.has(*PICTURES),
        "folders.read_text_files",
        "a folder with one folder of texts (.txt) for each class",
    ),
    "audio": Reader(
        lambda names: names.folder and names.has(*SOUNDS) and not names.has(*PICTURES),
        "annotated.sound_folders.read_sounds",
        "a folder with one folder of sounds (.wav, .flac) for each class",
    ),
    "images": Reader(
        lambda names: names.folder,
        "folders.read_images",
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
        from tpuctl.data.archives.only_archive import archive_tree  # noqa: PLC0415  most sources are none

        tree = archive_tree(tree, progress)
    if kind is not None:
        return _read(_named(kind), tree, options, progress, headers)
    chosen = kind_of(tree)
    opened = _read(READERS[chosen.kind], tree, options, progress, headers)
    opened.also = chosen.also
    return opened


class ChosenKind(NamedTuple):
    """The kind of a source by the names of its files."""

    kind: str
    also: tuple[str, ...]
    """Kinds of other files there, which a user may mean."""


def kind_of(tree: Tree) -> ChosenKind:
    """Choose the kind of a source; raises UsageError where none fits."""
    names = _names(tree)
    for kind, reader in READERS.items():
        if reader.fits(names):
            return ChosenKind(kind, tuple(_also(names, kind)))
    raise UsageError(
        f"'{tree}' is not a source tpuctl can read.",
        hint=f"Give {', or '.join(reader.description for reader in READERS.values())}.",
        source=str(tree),
    )


def _also(names: SourceNames, chosen: str) -> Iterator[str]:
    """Yield the kinds of files that are there besides those of the chosen kind."""
    if chosen in _WHOLE_FOLDERS:
        return
    for kind, reader in READERS.items():
        if kind != chosen and reader.pattern and names.any(reader.pattern):
            yield kind
    in_folders = [name.lower() for name in names.names if "/" in name]
    if chosen != "text" and any(name.endswith(files.TEXT_FILES) for name in in_folders):
        yield "text"


_WHOLE_FOLDERS = frozenset({"tfds", "saved", "webdataset", "metadata"})
"""Kinds whose sources have files of other kinds in them."""


def _read(reader: Reader, tree: Tree, options: Options, progress: ScanProgress, headers: bytes) -> Source:
    read = reader.load()
    if headers and reader is READERS["images"]:
        return read(tree, options, progress, headers)
    return read(tree, options, progress)


def _local(path: Path) -> Tree:
    if not path.exists():
        pattern = name_pattern(path.name)
        if not pattern or not path.parent.is_dir():
            raise _missing(path)
        return PatternTree(LocalTree(path.parent), pattern)
    return LocalTree.at(path)


def _named(kind: str) -> Reader:
    if kind not in READERS:
        hint = f"One of {', '.join(READERS)}."
        if kind == "arrayrecord":
            hint = "Shards are written as ArrayRecord with --file-format arrayrecord."
        raise UsageError(f"There is no kind of source called '{kind}'.", hint=hint, kind=kind)
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
