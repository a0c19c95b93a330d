"""Reads image trees with one folder per class: records with the encoded `image` and its `label`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import ClassFolders, list_class_folders
from tpuctl.data.images.ahead import Ahead
from tpuctl.data.images.header import ImageInfo, InvalidImage
from tpuctl.data.images.rule import ImageKind
from tpuctl.data.images.survey import Survey
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Feature, Label
from tpuctl.data.source import Indices, Observations, Records, ScanProgress, Source, evenly_spaced
from tpuctl.data.sources.image_fields import image_feature
from tpuctl.data.tfrecord.example_encoding import Encoder, delimited, encode
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_SAMPLE = 8
"""Images that are converted to estimate the size of all."""

_Result = tuple[bytes, ImageInfo] | BadRecord


class ImageSource(Source):
    """The images of a tree of class folders; each record holds its file unchanged, or converted."""

    def __init__(
        self, tree: ClassFolders, options: Options, progress: ScanProgress, headers: bytes = b""
    ) -> None:
        self._tree = tree
        self._labels = tree.labels()
        self._survey = Survey(tree.files, progress, headers)
        counts = self._survey.counts
        self.rule = counts.rule(options.channels, options.resize)
        self._ahead = Ahead()
        self._encoder = Encoder({"image": "bytes", "label": "int64"})
        report = counts.report(self.rule)
        super().__init__(
            kind="images",
            origin=tree,
            features=self.final_features(Observations()),
            supervised=("image", "label"),
            labels=self._labels,
            exact=not (report.converted or self.rule.size),
            parts=tree.parts(self._record_sizes()),
            images=report,
            bad_images=self._survey.bad(self.rule),
        )

    def read(self, indices: Indices, observations: Observations) -> Records:
        files = self._tree.files.read_each(indices)
        numbered = (
            (index, data, self._is_converted(self._survey.kind(index)))
            for index, data in zip(indices.tolist(), files, strict=True)
        )
        for index, result in self._ahead.map(self._image, numbered):
            if isinstance(result, BadRecord):
                yield result
                continue
            data, image = result
            observations.note("height", image.height)
            observations.note("width", image.width)
            observations.note("encoding", image.encoding)
            yield self._encoder.encode((data, int(self._labels[index])))

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        return {"image": image_feature(self.rule, observations), "label": Label(self._tree.classes)}

    @property
    def headers(self) -> bytes:
        return self._survey.headers

    def close(self) -> None:
        self._ahead.close()

    def _image(self, index: int, data: bytes | OSError) -> _Result:
        if isinstance(data, OSError):
            return self._tree.unreadable_record(index, data)
        try:
            return self.rule.apply(data)
        except InvalidImage as error:
            return BadRecord(self._tree.files.key(index), str(error), hint=error.hint)

    def _is_converted(self, kind: ImageKind) -> bool:
        return not self.rule.why_bad(kind) and bool(self.rule.size or self.rule.reasons(kind))

    def _record_sizes(self) -> NDArray[np.int64]:
        """Return the size of each record; where images are converted, an estimate from some of them."""
        sizes = self._tree.files.sizes.copy()
        converted = self._survey.indices(self._is_converted)
        if len(converted):
            sizes[converted] = self._converted_size(converted)
        # besides the image a record holds the entry of its label, which is not as long for every class
        classes = range(len(self._tree.classes))
        entries = np.array([len(encode({"label": label})) - 2 for label in classes], np.int64)
        image = delimited(delimited(delimited(sizes)))  # value, list, feature
        key = len(b"image") + 2
        return delimited(delimited(key + image) + entries[self._labels])

    def _converted_size(self, indices: Indices) -> int:
        """Return the mean size in bytes of some images after their conversion."""
        sample = indices[evenly_spaced(len(indices), _SAMPLE)]
        files = zip(sample.tolist(), self._tree.files.read_each(sample), strict=True)
        results = self._ahead.map(self._image, ((index, data, True) for index, data in files))
        measured = [len(result[0]) for _, result in results if not isinstance(result, BadRecord)]
        return sum(measured) // len(measured) if measured else 0


def read_images(tree: Tree, options: Options, progress: ScanProgress, headers: bytes = b"") -> ImageSource:
    """Return the image tree; raises UsageError where it is none. `headers` are `Source.headers` of it."""
    if options.types or options.label:
        raise UsageError(
            "A tree of images has the fields image and label, and no others.",
            hint="Run it without --type or --label: the folders are the labels.",
        )
    return ImageSource(list_class_folders(tree, progress), options, progress, headers)
