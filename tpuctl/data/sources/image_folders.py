"""Reads image trees with one folder per class: records with the encoded `image` and its `label`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import ClassFolders, list_class_folders
from tpuctl.data.images.header import ImageInfo, InvalidImage, inspect_image
from tpuctl.data.images.resize import resized
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Feature, Image, Label
from tpuctl.data.source import Indices, Observations, Records, ScanProgress, Source, evenly_spaced
from tpuctl.data.tfrecord.example_encoding import Encoder, delimited, encode
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_MOST_TRIED = 100
"""Files tried for the first valid image, whose channels all others must have."""
_RESIZED = 16
"""Images that are resized to estimate the size of all."""


class ImageSource(Source):
    """The images of a tree of class folders; each record holds its file unchanged, or resized."""

    def __init__(self, tree: ClassFolders, resize: tuple[int, int] | None = None) -> None:
        self._tree = tree
        self._resize = resize
        self._labels = tree.labels()
        self._first = _first_image(tree)
        self._encoder = Encoder({"image": "bytes", "label": "int64"})
        super().__init__(
            kind="images",
            origin=tree,
            features=self.final_features(Observations()),
            supervised=("image", "label"),
            labels=self._labels,
            exact=resize is None,
            parts=tree.parts(self._record_sizes()),
        )

    def read(self, indices: Indices, observations: Observations) -> Records:
        contents = self._tree.files.read_each(indices)
        labels = self._labels[indices].tolist()
        for index, label, data in zip(indices.tolist(), labels, contents, strict=True):
            try:
                if isinstance(data, OSError):
                    raise data
                image = inspect_image(data)
                self._check_channels(image)
                if self._resize:
                    data = resized(data, self._resize)
                    image = inspect_image(data)
            except OSError as error:
                yield self._tree.unreadable_record(index, error)
            except InvalidImage as error:
                yield BadRecord(self._tree.files.key(index), str(error))
            else:
                observations.note("height", image.height)
                observations.note("width", image.width)
                observations.note("encoding", image.encoding)
                yield self._encoder.encode((data, label))

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        channels, dtype = self._first[1].pixels if self._first else (3, "uint8")
        shape = (observations.only_number("height"), observations.only_number("width"), channels)
        encoding = observations.only("encoding")
        image = Image(shape, dtype, str(encoding) if encoding else None)
        return {"image": image, "label": Label(self._tree.classes)}

    def _record_sizes(self) -> NDArray[np.int64]:
        """Return the size of each record; where images are resized, an estimate from some of them."""
        sizes = self._tree.files.sizes
        if self._resize:
            sizes = np.full(len(sizes), self._resized_size(self._resize), np.int64)
        # besides the image a record holds the entry of its label, which is not as long for every class
        classes = range(len(self._tree.classes))
        entries = np.array([len(encode({"label": label})) - 2 for label in classes], np.int64)
        image = delimited(delimited(delimited(sizes)))  # value, list, feature
        key = len(b"image") + 2
        return delimited(delimited(key + image) + entries[self._labels])

    def _resized_size(self, size: tuple[int, int]) -> int:
        """Return the mean size in bytes of some images after resizing."""
        measured = []
        for index in evenly_spaced(len(self._tree.files), _RESIZED).tolist():
            try:
                measured.append(len(resized(self._tree.files.read(index), size)))
            except (InvalidImage, OSError):
                continue
        return sum(measured) // len(measured) if measured else 0

    def _check_channels(self, image: ImageInfo) -> None:
        if self._first is None or image.pixels == self._first[1].pixels:
            return
        name, first = self._first
        raise InvalidImage(f"has {_describe(image)}, but '{name}' has {_describe(first)}")


def read_images(tree: Tree, options: Options, progress: ScanProgress) -> ImageSource:
    """Return the image tree; raises UsageError where it is none."""
    if options.types or options.label:
        raise UsageError(
            "A tree of images has the fields image and label, and no others.",
            hint="Run it without --type or --label: the folders are the labels.",
        )
    return ImageSource(list_class_folders(tree, progress), options.resize)


def _first_image(tree: ClassFolders) -> tuple[str, ImageInfo] | None:
    """Return the first valid image in the order of the files, and its name."""
    for index in range(min(_MOST_TRIED, len(tree.files))):
        try:
            return tree.files.key(index), inspect_image(tree.files.read(index))
        except (InvalidImage, OSError):
            continue
    return None


def _describe(image: ImageInfo) -> str:
    return f"{image.channels} channel{'s' if image.channels > 1 else ''} of {image.dtype}"
