"""Adds up what the records of a split hold, field by field.

- Adds up means and standard deviations piece by piece, without losing digits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.analysis.comparison import fingerprint
from tpuctl.data.images.decoding import decodable
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.options import TOKENS
from tpuctl.data.schema.features import Feature, Image, Label, Tensor, Text
from tpuctl.data.tfrecord.column_decoding import Column, Columns
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.texts import Texts

_HELD = 4096
"""Numbers that are added up at once."""


@dataclass(frozen=True)
class Moments:
    """Count, mean, deviation and bounds of numbers; of none, the mean is NaN."""

    count: int = 0
    mean: float = math.nan
    squares: float = 0.0
    """Sum of the squared distances from the mean."""
    least: float = math.inf
    most: float = -math.inf
    missing: int = 0
    """NaN, which are not counted."""

    @classmethod
    def of(cls, values: NDArray[np.number]) -> Moments:
        """Return those of an array."""
        numbers = np.asarray(values, np.float64).ravel()
        present = numbers[~np.isnan(numbers)]
        missing = len(numbers) - len(present)
        if not len(present):
            return cls(missing=missing)
        mean = float(present.mean())
        squares = float(((present - mean) ** 2).sum())
        return cls(len(present), mean, squares, float(present.min()), float(present.max()), missing)

    @classmethod
    def of_histogram(cls, counts: list[int]) -> Moments:
        """Return those of whole numbers from 0 on, from how often each occurs: the sums are exact."""
        count = sum(counts)
        if not count:
            return cls()
        total = sum(value * times for value, times in enumerate(counts))
        square = sum(value * value * times for value, times in enumerate(counts))
        present = [value for value, times in enumerate(counts) if times]
        squares = (count * square - total * total) / count
        return cls(count, total / count, squares, float(present[0]), float(present[-1]))

    def __add__(self, other: Moments) -> Moments:
        """Return those of all numbers of both: Chan, Golub and LeVeque (1979)."""
        missing = self.missing + other.missing
        if not self.count or not other.count:
            more = other if other.count else self
            return Moments(more.count, more.mean, more.squares, more.least, more.most, missing)
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * other.count / count
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        return Moments(
            count, mean, squares, min(self.least, other.least), max(self.most, other.most), missing
        )

    @property
    def deviation(self) -> float:
        """Standard deviation of these numbers, not of what they are a sample of."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan

    def scaled(self, factor: float) -> Moments:
        """Return those of the numbers times a positive factor."""
        return Moments(
            self.count,
            self.mean * factor,
            self.squares * factor * factor,
            self.least * factor,
            self.most * factor,
            self.missing,
        )


@dataclass
class Series:
    """Numbers that come one by one."""

    _total: Moments = Moments()
    _recent: list[float] = field(default_factory=list)

    def add(self, *values: float) -> None:
        """Add numbers."""
        self._recent += values
        if len(self._recent) >= _HELD:
            self.flush()

    def add_all(self, values: NDArray[np.number]) -> None:
        """Add many numbers."""
        self.flush()
        self._total += Moments.of(values)

    @property
    def moments(self) -> Moments:
        """Those of all numbers so far."""
        self.flush()
        return self._total

    def flush(self) -> None:
        """Add up the numbers that are held."""
        if self._recent:
            self._total += Moments.of(np.array(self._recent, np.float64))
            self._recent.clear()


# Measures one picture: its size, the moments of each channel, and a hash of what it looks like.
_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}
_WIDE = ("I", "I;16", "I;16B")
_GRID = 8


@dataclass(frozen=True)
class Picture:
    """What one picture holds."""

    height: int
    width: int
    channels: tuple[Moments, ...]
    """Of the values from 0 to 1."""
    brightness: float
    """Mean of all channels but the transparency."""
    looks: int
    """64 bits, the same for pictures that look alike: which parts of a copy are brighter than the next."""


def measure(data: bytes) -> Picture | None:
    """Return what a picture holds; None where it cannot be decoded."""
    try:
        with decodable(data, None) as image:
            width, height = image.size
            if image.mode in _WIDE:
                wide = np.asarray(image).astype(np.float64) / 65535
                channels: tuple[Moments, ...] = (Moments.of(wide),)
                grey = image.convert("F").resize((_GRID + 1, _GRID))
            else:
                plain = image.convert(_MODES.get(image.mode, image.mode))
                counts = plain.histogram()
                bands = [counts[start : start + 256] for start in range(0, len(counts), 256)]
                channels = tuple(Moments.of_histogram(band).scaled(1 / 255) for band in bands)
                grey = plain.convert("L").resize((_GRID + 1, _GRID))
            small = np.asarray(grey).astype(np.float64)
    except InvalidImage:
        return None
    colours = channels[:-1] if len(channels) in (2, 4) else channels
    brightness = sum(channel.mean for channel in colours) / len(colours)
    brighter = (small[:, 1:] > small[:, :-1]).ravel()
    return Picture(
        height, width, channels, brightness, int.from_bytes(np.packbits(brighter).tobytes(), "big")
    )


_MOST_SIZES = 10_000
"""Different sizes of pictures that are counted one by one."""
_MOST_HELD = 1 << 22
"""Numbers of all fields that are held before they are added up: a table may have very many columns."""


@dataclass(frozen=True)
class Measured:
    """One record: its values, its hash, and its pictures by field."""

    size: int
    values: Mapping[str, Values]
    fingerprint: tuple[int, int, int]
    pictures: Mapping[str, Picture | None]

    @property
    def looks(self) -> int:
        """The look of its first picture; 0 without one."""
        return next((picture.looks for picture in self.pictures.values() if picture), 0)


def measured(record: bytes, features: Mapping[str, Feature]) -> Measured:
    """Decode a record with its pictures; raises UsageError if it is no Example."""
    values = decode(record)
    pictures = {
        name: measure(data) if isinstance(data, bytes) else None
        for name, feature in features.items()
        if isinstance(feature, Image)
        for data in values.get(name, [])[:1]
    }
    return Measured(len(record), values, fingerprint(values, features), pictures)


@dataclass
class PictureSums:
    """The pictures of one field."""

    heights: Series = field(default_factory=Series)
    widths: Series = field(default_factory=Series)
    brightness: Series = field(default_factory=Series)
    channels: dict[int, tuple[Moments, ...]] = field(default_factory=dict)
    """Number of channels -> the moments of each, over all pixels."""
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    broken: int = 0

    def add(self, picture: Picture | None) -> None:
        """Add a picture, None for one that cannot be decoded."""
        if picture is None:
            self.broken += 1
            return
        self.heights.add(picture.height)
        self.widths.add(picture.width)
        self.brightness.add(picture.brightness)
        count = len(picture.channels)
        sums = self.channels.get(count, (Moments(),) * count)
        self.channels[count] = tuple(total + own for total, own in zip(sums, picture.channels, strict=True))
        size = (picture.height, picture.width)
        if size in self.sizes or len(self.sizes) < _MOST_SIZES:
            self.sizes[size] += 1


@dataclass
class Contents:
    """The sums over the records of a split."""

    features: Mapping[str, Feature]
    records: int = 0
    classes: dict[str, Counter[int]] = field(default_factory=dict)
    """Field of labels -> how many records each class has."""
    numbers: dict[str, Series] = field(default_factory=dict)
    """Field of numbers, or of texts and tokens, of which these are the lengths."""
    pictures: dict[str, PictureSums] = field(default_factory=dict)
    _held: int = 0

    def __post_init__(self) -> None:
        """Note what each field counts as."""
        self._labels = [name for name, feature in self.features.items() if isinstance(feature, Label)]
        kinds = {name: _numbers_of(name, feature) for name, feature in self.features.items()}
        self._numbers = {name: numbers_of for name, numbers_of in kinds.items() if numbers_of}

    def add(self, record: Measured) -> None:
        """Add a record."""
        self.records += 1
        for name in self._labels:
            counts = self.classes.get(name) or self.classes.setdefault(name, Counter())
            for value in record.values.get(name, [])[:1]:
                counts[int(value)] += 1
        for name, numbers_of in self._numbers.items():
            if numbers := numbers_of(record.values.get(name, [])):
                series = self.numbers.get(name) or self.numbers.setdefault(name, Series())
                series.add(*numbers)
                self._held += len(numbers)
        if self._held > _MOST_HELD:
            self._held = 0
            for series in self.numbers.values():
                series.flush()
        for name, picture in record.pictures.items():
            self.pictures.setdefault(name, PictureSums()).add(picture)

    def add_columns(self, columns: Columns) -> None:
        """Add records that have one value of each field."""
        self.records += len(columns.bounds[0])
        for name in self._labels:
            counts = self.classes.setdefault(name, Counter())
            numbers, times = np.unique(_numbers(columns.values[name]), return_counts=True)
            counts.update(dict(zip(numbers.tolist(), times.tolist(), strict=True)))
        for name in self._numbers:
            self.numbers.setdefault(name, Series()).add_all(_numbers(columns.values[name]))


def has_columns(features: Mapping[str, Feature]) -> bool:
    """Return whether records have one value of each field, as those of a table."""
    return (
        bool(features)
        and TOKENS not in features
        and all(
            isinstance(feature, Label | Text) or (isinstance(feature, Tensor) and feature.shape == ())
            for feature in features.values()
        )
    )


def _numbers(column: Column) -> NDArray[np.number]:
    """Return numbers, or how many characters texts have."""
    if not isinstance(column, Texts):
        return column
    counts = column.sizes.copy()
    wide = np.concatenate(([0], np.cumsum(column.data > 127)))
    rows = np.flatnonzero(wide[column.begins + column.sizes] > wide[column.begins])
    counts[rows] = [len(cell.decode(errors="replace")) for cell in column.chosen(rows).cells()]
    return counts


def _numbers_of(name: str, feature: Feature) -> Callable[[Values], list[float]] | None:
    """Return what takes the numbers of a field, None where it has none.

    Of a text these are its characters, of tokens how many are no padding.
    """
    if isinstance(feature, Label):
        return None
    if isinstance(feature, Text):
        return lambda values: [
            len(value.decode(errors="replace")) for value in values if isinstance(value, bytes)
        ]
    if name == TOKENS:
        return lambda values: [sum(1 for value in values if value)]
    if isinstance(feature, Tensor) and feature.dtype != "string":
        return lambda values: list(map(float, values))
    return None
