"""The reader of class-per-folder image trees: records with the encoded `image` and its `label`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import ClassFolders, list_class_folders
from tpuctl.data.files.listing import unreadable
from tpuctl.data.images.header import ImageInfo, InvalidImage, inspect_image
from tpuctl.data.images.resize import resized
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Feature, Image, Label
from tpuctl.data.source import Indices, Observations, Part, Records, ScanProgress
from tpuctl.data.tfrecord.example_encoding import Encoder, delimited, encode
from tpuctl.errors import UsageError

_LOOKED_AT = 100
"""Files that are tried for the first picture, whose channels all others must have."""
_TRIED = 16
"""Images that are resized to see how large they get."""


class ImageSource:
    """The image tree at `root`; each file goes into its record as it is."""

    kind = "images"
    supervised = ("image", "label")

    def __init__(self, tree: ClassFolders, resize: tuple[int, int] | None = None) -> None:
        self._tree = tree
        self._resize = resize
        self.exact = resize is None
        self.bad = tree.bad
        self.labels = tree.labels()
        self.fingerprint = tree.files.fingerprint
        self.parts = _parts(tree, self._sizes())
        self._model = self._first_picture()
        self.features: Mapping[str, Feature] = self.final_features(Observations())
        self._encoder = Encoder({"image": "bytes", "label": "int64"})

    def read(self, indices: Indices, seen: Observations) -> Records:
        for index, label in zip(indices.tolist(), self.labels[indices].tolist(), strict=True):
            try:
                data = self._tree.files.read(index)
                picture = inspect_image(data)
                self._check_channels(picture)
                if self._resize:
                    data = resized(data, self._resize)
                    picture = inspect_image(data)
            except OSError as error:
                yield self._unreadable(index, error)
            except InvalidImage as error:
                yield BadRecord(self._tree.files.key(index), str(error))
            else:
                seen.note("height", picture.height)
                seen.note("width", picture.width)
                seen.note("encoding", picture.encoding)
                yield self._encoder.encode((data, label))

    def stamp(self, indices: Indices) -> bytes:
        return self._tree.files.stamp(indices)

    def check(self) -> None:
        self._tree.files.check(list_class_folders(self._tree.files.root).files)

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        height, width, encoding = (seen.only(name) for name in ("height", "width", "encoding"))
        channels, dtype = (self._model[1].channels, self._model[1].dtype) if self._model else (3, "uint8")
        shape = (_number(height), _number(width), channels)
        image = Image(shape, dtype, str(encoding) if encoding else None)
        return {"image": image, "label": Label(self._tree.classes)}

    def close(self) -> None:
        """Nothing is open between reads."""

    def _sizes(self) -> NDArray[np.int64]:
        """Return the size of each record; where images are resized, that of some that were tried."""
        sizes = self._tree.files.sizes
        if self._resize:
            sizes = np.full(len(sizes), self._size_of_some(self._resize), np.int64)
        # besides the image a record holds the entry of its label, which is not as long for every class
        classes = range(len(self._tree.classes))
        entries = np.array([len(encode({"label": one})) - 2 for one in classes], np.int64)
        image = delimited(delimited(delimited(sizes)))  # value, list, feature
        key = len(b"image") + 2
        return delimited(delimited(key + image) + entries[self.labels])

    def _size_of_some(self, size: tuple[int, int]) -> int:
        found = []
        for index in np.unique(np.linspace(0, len(self._tree.files) - 1, _TRIED).astype(int)).tolist():
            try:
                found.append(len(resized(self._tree.files.read(index), size)))
            except (InvalidImage, OSError):
                continue
        return sum(found) // len(found) if found else 0

    def _unreadable(self, index: int, error: OSError) -> BadRecord:
        if isinstance(error, FileNotFoundError):
            raise unreadable(self._tree.files.key(index), error) from error
        return BadRecord(
            self._tree.files.key(index), f"cannot be read: {error.strerror}", hint="Check its permissions."
        )

    def _first_picture(self) -> tuple[str, ImageInfo] | None:
        """Return the first whole picture in the order of the files, whatever is bad before it."""
        for index in range(min(_LOOKED_AT, len(self._tree.files))):
            try:
                return self._tree.files.key(index), inspect_image(self._tree.files.read(index))
            except (InvalidImage, OSError):
                continue
        return None

    def _check_channels(self, picture: ImageInfo) -> None:
        if self._model is None or picture[2:4] == self._model[1][2:4]:
            return
        name, first = self._model
        raise InvalidImage(f"has {_describe(picture)}, but '{name}' has {_describe(first)}")


def read_images(root: Path, options: Options, progress: ScanProgress) -> ImageSource:
    """Return the image tree at `root`; raises UsageError where it is none."""
    if options.types or options.label:
        raise UsageError(
            "A tree of images has the fields image and label, and no others.",
            hint="Leave --type and --label out: the folders are the labels.",
        )
    tree = list_class_folders(root)
    progress(len(tree.files), len(tree.files))
    return ImageSource(tree, options.resize)


def _parts(tree: ClassFolders, sizes: NDArray[np.int64]) -> tuple[Part, ...]:
    """Return the splits, which are runs of folders."""
    return tuple(Part(split, end - first, int(sizes[first:end].sum())) for split, first, end in tree.splits())


def _number(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None


def _describe(picture: ImageInfo) -> str:
    return f"{picture.channels} channel{'s' if picture.channels > 1 else ''} of {picture.dtype}"
