"""Turns sound files into a field of samples, all with the rate and the channels that most of them have."""

from __future__ import annotations

import numpy as np

from tpuctl.data.files.listing import Listing
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Feature
from tpuctl.data.source import Observations, ScanProgress
from tpuctl.data.sources.annotated.fields import Content
from tpuctl.data.sources.audio import HEAD, InvalidSound, SoundRule

_BATCH = 1024


class Sounds:
    """Sounds as TFDS's Audio: an int64 for each sample."""

    def __init__(self, name: str, listing: Listing, options: Options, progress: ScanProgress) -> None:
        self.name = name
        self.listing = listing
        self._rule = SoundRule()
        for start in range(0, len(listing), _BATCH):
            numbers = np.arange(start, min(start + _BATCH, len(listing)))
            for head in listing.read_heads(numbers, HEAD):
                if isinstance(head, bytes):
                    self._rule.add(head)
            progress(int(numbers[-1]) + 1, len(listing))
        self._rule.finish()

    def feature(self, observations: Observations) -> Feature:
        """As `MediaField.feature`."""
        return self._rule.feature

    def slow(self, index: int) -> bool:
        """As `MediaField.slow`: never."""
        return False

    def content(self, data: bytes) -> Content:
        """As `MediaField.content`."""
        try:
            return Content(self._rule.apply(data))
        except InvalidSound as error:
            raise InvalidImage(str(error), hint=error.hint) from error

    def note(self, content: Content, observations: Observations) -> None:
        """As `MediaField.note`: the headers have said all."""
