"""Defines the rule that all sounds of a field follow: the rate and the channels that most of them have."""

from __future__ import annotations

from collections import Counter

from tpuctl.data.schema.features import Audio
from tpuctl.data.sources.audio.header import HEAD, InvalidSound, SoundInfo, inspect_sound
from tpuctl.data.sources.audio.samples import samples, sound_library
from tpuctl.data.tfrecord.example_encoding import packed_ints


class SoundRule:
    """Counts the headers of sounds with `add`, and converts those that follow the rule."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()
        self._encodings: set[str] = set()
        self._rule = (0, 0)

    @property
    def sounds(self) -> int:
        """How many of those that were added are sounds."""
        return self._counts.total()

    def add(self, head: bytes) -> None:
        """Count the beginning of a file; what is no sound is left out."""
        try:
            info = inspect_sound(head[:HEAD])
        except InvalidSound:
            return
        self._counts[info.rule] += 1
        self._encodings.add(info.encoding)

    def finish(self) -> SoundRule:
        """To be called once, after the last `add`; raises ConfigError where FLAC cannot be decoded."""
        if self._counts:
            self._rule = self._counts.most_common(1)[0][0]
        if "flac" in self._encodings:
            sound_library()
        return self

    @property
    def feature(self) -> Audio:
        """The feature of all sounds."""
        rate, channels = self._rule
        return Audio(
            rate, max(channels, 1), next(iter(self._encodings)) if len(self._encodings) == 1 else None
        )

    def apply(self, data: bytes) -> bytes:
        """Return the samples of a file as a packed list of int64; raises InvalidSound."""
        info = inspect_sound(data[:HEAD])
        if info.rule != self._rule:
            raise self._differs(info)
        return packed_ints(samples(data, info))

    def _differs(self, info: SoundInfo) -> InvalidSound:
        rate, channels = self._rule
        most = f"{self._counts[self._rule]} of {self._counts.total()} have {_words(rate, channels)}"
        fix = f"Convert it: ffmpeg -i OLD -ar {rate} -ac {channels} NEW"
        return InvalidSound(f"has {_words(info.rate, info.channels)}, and {most}", fix)


def _words(rate: int, channels: int) -> str:
    return f"{rate} samples a second in {channels} channel{'s' * (channels != 1)}"
