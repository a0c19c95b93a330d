"""Reads texts in class folders: one record a file, with its `text` and its `label`.

- Decides which fields of a source hold images, and by which rule: for every reader of images.
- Reads image trees with one folder per class: records with the encoded `image` and its `label`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import ClassFolders, list_class_folders
from tpuctl.data.images.decoding import Ahead
from tpuctl.data.images.header import ImageInfo, InvalidImage
from tpuctl.data.images.report import ImageReport, merged
from tpuctl.data.images.rule import ImageCounts, ImageKind, ImageRule
from tpuctl.data.images.survey import Survey
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Feature, Image, Label, Text
from tpuctl.data.source import Indices, Observations, Records, ScanProgress, Source, evenly_spaced
from tpuctl.data.tables.columns import Column, InvalidValue, check_no_images, within_memory
from tpuctl.data.tfrecord.example_encoding import Encoder, delimited, encode
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_TRIED = 16
"""Values of a field that holds no images if none of these is one."""


class ImageField(NamedTuple):
    """The rule for the images of a field, and what they are."""

    rule: ImageRule
    report: ImageReport

    @property
    def feature(self) -> Image:
        """The feature, as far as known before the conversion."""
        return image_feature(self.rule, Observations())


def image_field(values: Iterable[bytes], options: Options, *, sampled: bool) -> ImageField | None:
    """Return the field with these values if at least half are images; `sampled`: the source has more."""
    counts = ImageCounts()
    for number, value in enumerate(values, 1):
        counts.add_image(value)
        if number == _TRIED and not counts.images:
            return None
    if not counts.images or 2 * counts.images < counts.total:
        return None
    rule = counts.rule(options.channels, options.resize)
    return ImageField(rule, counts.report(rule, sampled=sampled))


def image_column(name: str, field: ImageField, content: Callable[[object], bytes]) -> Column[object]:
    """Return the column of a field; `content` returns the encoded image in a cell, such as one of Arrow."""

    def convert(cell: object) -> bytes:
        try:
            return field.rule.apply(content(cell))[0]
        except InvalidImage as error:
            raise InvalidValue(str(error)) from error

    def convert_many(cells: Any) -> list[bytes]:
        with closing(Ahead()) as ahead:
            items = ((0, cell, True) for cell in cells.to_pylist())
            return within_memory(image for _, image in ahead.map(lambda _, cell: convert(cell), items))

    slow = field.report.converted or field.rule.size
    return Column(name, field.feature, convert, "images", convert_many if slow else None)


def image_feature(rule: ImageRule, observations: Observations, name: str = "") -> Image:
    """Return the feature of images that follow a rule; `name` is that of a column among others."""
    prefix = f"{name} " if name else ""
    height, width = (observations.only_number(f"{prefix}{side}") for side in ("height", "width"))
    # TFDS takes no encoding where the channels vary
    encoding = observations.only(f"{prefix}encoding") if rule.channels else None
    shape = (height, width, rule.channels)
    return Image(shape, rule.dtype or "uint8", str(encoding) if encoding else None)


def report_of(fields: Sequence[ImageField], options: Options, source: str) -> ImageReport | None:
    """Return what all images of a source are; raises UsageError for options of images if it has none."""
    if not fields:
        check_no_images(options, source)
    return merged([field.report for field in fields])


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
