"""Turns sound files into a field of samples, all with the rate and the channels that most of them have."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tpuctl.data.files.listing import Listing
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Audio, Feature
from tpuctl.data.source import Observations, ScanProgress
from tpuctl.data.sources.annotated.fields import Content
from tpuctl.data.sources.audio.header import HEAD, InvalidSound, SoundInfo, inspect_sound
from tpuctl.data.sources.audio.samples import samples, sound_library
from tpuctl.data.tfrecord.example_encoding import packed_ints

SOUNDS = (".wav", ".flac")
"""Endings of the names of sounds, in small letters."""
_BATCH = 1024


class Sounds:
    """Sounds as TFDS's Audio: an int64 for each sample."""

    def __init__(self, name: str, listing: Listing, options: Options, progress: ScanProgress) -> None:
        self.name = name
        self.listing = listing
        self._counts: Counter[tuple[int, int]] = Counter()
        encodings: Counter[str] = Counter()
        for start in range(0, len(listing), _BATCH):
            numbers = np.arange(start, min(start + _BATCH, len(listing)))
            for head in listing.read_heads(numbers, HEAD):
                if info := _info(head):
                    self._counts[info.rule] += 1
                    encodings[info.encoding] += 1
            progress(int(numbers[-1]) + 1, len(listing))
        self._rule = self._counts.most_common(1)[0][0] if self._counts else (0, 0)
        self._encoding = next(iter(encodings)) if len(encodings) == 1 else None
        if "flac" in encodings:
            sound_library()

    def feature(self, observations: Observations) -> Feature:
        """As `MediaField.feature`."""
        rate, channels = self._rule
        return Audio(rate, max(channels, 1), self._encoding)

    def slow(self, index: int) -> bool:
        """As `MediaField.slow`: never."""
        return False

    def content(self, data: bytes) -> Content:
        """As `MediaField.content`."""
        try:
            info = inspect_sound(data[:HEAD])
            if info.rule != self._rule:
                raise self._differs(info)
            return Content(packed_ints(samples(data, info)))
        except InvalidSound as error:
            raise InvalidImage(str(error), hint=error.hint) from error

    def note(self, content: Content, observations: Observations) -> None:
        """As `MediaField.note`: the headers have said all."""

    def _differs(self, info: SoundInfo) -> InvalidSound:
        rate, channels = self._rule
        most = f"{self._counts[self._rule]} of {self._counts.total()} have {_words(rate, channels)}"
        fix = f"Convert it: ffmpeg -i OLD -ar {rate} -ac {channels} NEW"
        return InvalidSound(f"has {_words(info.rate, info.channels)}, and {most}", fix)


def _info(head: bytes | OSError) -> SoundInfo | None:
    try:
        return None if isinstance(head, OSError) else inspect_sound(head)
    except InvalidSound:
        return None


def _words(rate: int, channels: int) -> str:
    return f"{rate} samples a second in {channels} channel{'s' * (channels != 1)}"
