"""The reader of texts in class folders: one record a file, with its `text` and its `label`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import ClassFolders, list_class_folders
from tpuctl.data.files.listing import unreadable
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Feature, Label, Text
from tpuctl.data.source import Indices, Observations, Part, Records, ScanProgress
from tpuctl.data.tfrecord.example_encoding import Encoder
from tpuctl.errors import UsageError

SUFFIXES = (".txt", ".text")
_OVERHEAD = 35
"""Bytes of a record besides its text, about."""
_BOM = "\ufeff"


class TextSource:
    """The tree of texts at `root`; a byte order mark at the beginning of a file is not part of its text."""

    kind = "text"
    supervised = ("text", "label")
    exact = False

    def __init__(self, tree: ClassFolders) -> None:
        self._tree = tree
        self.bad = tree.bad
        self.labels = tree.labels()
        self.fingerprint = tree.files.fingerprint
        self.features: Mapping[str, Feature] = {"text": Text(), "label": Label(tree.classes)}
        sizes = tree.files.sizes + _OVERHEAD
        self.parts = tuple(
            Part(split, end - first, int(sizes[first:end].sum())) for split, first, end in tree.splits()
        )
        self._encoder = Encoder({"text": "bytes", "label": "int64"})

    def read(self, indices: Indices, seen: Observations) -> Records:
        for index, label in zip(indices.tolist(), self.labels[indices].tolist(), strict=True):
            try:
                text = self._tree.files.read(index).decode().removeprefix(_BOM)
            except FileNotFoundError as error:
                raise unreadable(self._tree.files.key(index), error) from error
            except OSError as error:
                yield BadRecord(
                    self._tree.files.key(index),
                    f"cannot be read: {error.strerror}",
                    hint="Check its permissions",
                )
            except UnicodeDecodeError as error:
                yield self._not_utf8(index, error)
            else:
                yield (
                    self._encoder.encode((text, label))
                    if text
                    else BadRecord(self._tree.files.key(index), "is empty")
                )

    def stamp(self, indices: Indices) -> bytes:
        return self._tree.files.stamp(indices)

    def check(self) -> None:
        self._tree.files.check(list_class_folders(self._tree.files.root).files)

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        return self.features

    def close(self) -> None:
        """Nothing is open between reads."""

    def _not_utf8(self, index: int, error: UnicodeDecodeError) -> BadRecord:
        line = error.object.count(b"\n", 0, error.start) + 1
        hint = "Convert it: iconv -f LATIN1 -t UTF-8 OLD > NEW"
        return BadRecord(self._tree.files.key(index), "is not UTF-8 text", line, hint)


def read_text_files(root: Path, options: Options, progress: ScanProgress) -> TextSource:
    """Return the tree of texts at `root`; raises UsageError where it is none."""
    if options.types or options.label or options.resize:
        raise UsageError(
            "A tree of texts has the fields text and label, and no others.",
            hint="Leave --type, --label and --resize out: the folders are the labels.",
        )
    tree = list_class_folders(root)
    progress(len(tree.files), len(tree.files))
    return TextSource(tree)
