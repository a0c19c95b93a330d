"""Measures one picture: its size, the moments of each channel, and a hash of what it looks like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuctl.data.analysis.moments import Moments
from tpuctl.data.images.decoding import decodable
from tpuctl.data.images.header import InvalidImage

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
