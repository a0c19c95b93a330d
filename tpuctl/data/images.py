"""The reader of class-per-folder image trees: records with the encoded `image` and its `label`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import google_crc32c

from tpuctl.data.example import encode
from tpuctl.data.features import Image, Label
from tpuctl.data.folders import Leaf, Tree, list_tree
from tpuctl.data.picture import Picture, inspect
from tpuctl.data.source import Progress, Record, Source
from tpuctl.errors import UsageError

_AHEAD = 64
"""Images in flight: memory stays flat whatever the number of files."""


def read_images(root: Path, progress: Progress) -> Source:
    """Return the image tree at `root`, every image decoded once; raises UsageError that names a bad file."""
    tree = list_tree(root)
    numbers = {name: number for number, name in enumerate(tree.classes)}
    shapes = _Shapes()
    records = []
    for record, picture in _inspect_all(root, tree, numbers):
        shapes.add(record.key, picture)
        records.append(record)
        progress(len(records), len(tree.leaves))
    return Source(
        kind="images",
        features={"image": shapes.feature(), "label": Label(tree.classes)},
        classes=tree.classes,
        supervised=("image", "label"),
        records=tuple(records),
        read=partial(_example, root),
        keys=lambda: (leaf.key for leaf in list_tree(root).leaves),
    )


def _inspect_all(root: Path, tree: Tree, numbers: dict[str, int]) -> Iterator[tuple[Record, Picture]]:
    """Inspect the files on several threads (Pillow decodes outside the lock); yield in the files' order."""
    waiting: deque[Future[tuple[Record, Picture]]] = deque()
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for leaf in tree.leaves:
            waiting.append(pool.submit(_inspect, root, leaf, numbers[leaf.label]))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _inspect(root: Path, leaf: Leaf, label: int) -> tuple[Record, Picture]:
    data = _read_file(root, leaf.key)
    example = encode({"image": data, "label": label})
    record = Record(leaf.key, leaf.split, label, len(example), google_crc32c.value(example))
    return record, inspect(data, leaf.key)


def _example(root: Path, record: Record) -> bytes:
    return encode({"image": _read_file(root, record.key), "label": record.label})


def _read_file(root: Path, key: str) -> bytes:
    try:
        return (root / key).read_bytes()
    except OSError as error:
        raise UsageError(
            f"Cannot read '{key}': {error.strerror}.",
            hint="Check that the file is still there, and its permissions.",
            file=key,
        ) from error


class _Shapes:
    """The shape that all images share, gathered one by one."""

    def __init__(self) -> None:
        self._first: tuple[str, Picture] | None = None
        self._heights: set[int] = set()
        self._widths: set[int] = set()
        self._encodings: set[str] = set()

    def add(self, key: str, picture: Picture) -> None:
        """Take one more image; raises UsageError if its channels differ from the first one's."""
        first_key, first = self._first = self._first or (key, picture)
        if (picture.channels, picture.dtype) != (first.channels, first.dtype):
            raise UsageError(
                f"'{key}' has {_describe(picture)}, but '{first_key}' has {_describe(first)}.",
                hint="Convert all images to the same mode, e.g. `mogrify -colorspace sRGB -type TrueColor`.",
                file=key,
            )
        self._heights.add(picture.height)
        self._widths.add(picture.width)
        self._encodings.add(picture.encoding)

    def feature(self) -> Image:
        """Return the feature that fits every image taken."""
        assert self._first is not None, "a listed tree has files"
        _, first = self._first
        return Image(
            shape=(_only(self._heights), _only(self._widths), first.channels),
            dtype=first.dtype,
            encoding=next(iter(self._encodings)) if len(self._encodings) == 1 else None,
        )


def _only(sizes: set[int]) -> int | None:
    return next(iter(sizes)) if len(sizes) == 1 else None


def _describe(picture: Picture) -> str:
    return f"{picture.channels} channel{'s' if picture.channels > 1 else ''} of {picture.dtype}"
