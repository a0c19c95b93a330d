"""Reads texts in class folders: one record a file, with its `text` and its `label`."""

from __future__ import annotations

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import ClassFolders, list_class_folders
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Label, Text
from tpuctl.data.source import Indices, Observations, Records, ScanProgress, Source
from tpuctl.data.tfrecord.example_encoding import Encoder
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_OVERHEAD = 35
"""Bytes of a record besides its text, about."""
_BOM = "\ufeff"


class TextSource(Source):
    """The texts of a tree of class folders; a byte order mark at the beginning of a file is dropped."""

    def __init__(self, tree: ClassFolders) -> None:
        self._tree = tree
        self._labels = tree.labels()
        self._encoder = Encoder({"text": "bytes", "label": "int64"})
        super().__init__(
            kind="text",
            origin=tree,
            features={"text": Text(), "label": Label(tree.classes)},
            supervised=("text", "label"),
            labels=self._labels,
            parts=tree.parts(tree.files.sizes + _OVERHEAD),
        )

    def read(self, indices: Indices, observations: Observations) -> Records:
        contents = self._tree.files.read_each(indices)
        labels = self._labels[indices].tolist()
        for index, label, data in zip(indices.tolist(), labels, contents, strict=True):
            if isinstance(data, OSError):
                yield self._tree.unreadable_record(index, data)
                continue
            try:
                text = data.decode().removeprefix(_BOM)
            except UnicodeDecodeError as error:
                yield self._not_utf8(index, error)
            else:
                yield (
                    self._encoder.encode((text, label))
                    if text
                    else BadRecord(self._tree.files.key(index), "is empty")
                )

    def _not_utf8(self, index: int, error: UnicodeDecodeError) -> BadRecord:
        line = error.object.count(b"\n", 0, error.start) + 1
        hint = "Convert it: iconv -f LATIN1 -t UTF-8 OLD > NEW"
        return BadRecord(self._tree.files.key(index), "is not UTF-8 text", line, hint)


def read_text_files(tree: Tree, options: Options, progress: ScanProgress) -> TextSource:
    """Return the tree of texts; raises UsageError where it is none."""
    if options.types or options.label or options.resize or options.channels:
        raise UsageError(
            "A tree of texts has the fields text and label, and no others.",
            hint="Run it without --type, --label, --resize or --channels: the folders are the labels.",
        )
    return TextSource(list_class_folders(tree, progress))
