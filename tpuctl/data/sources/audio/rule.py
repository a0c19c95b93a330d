"""Defines the rule that all sounds of a field follow: the rate and the channels that most of them have."""

from __future__ import annotations

import io
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.features import Audio
from tpuctl.data.sources.audio.header import HEAD, InvalidSound, SoundInfo, inspect_sound
from tpuctl.data.tfrecord.example_encoding import packed_ints
from tpuctl.errors import ConfigError

MOST_SAMPLES = 1 << 25
"""Samples of a sound, of all channels: a quarter of a gigabyte when they are decoded."""


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


# Decodes sounds to whole numbers, as TFDS's Audio holds them.


def samples(data: bytes, info: SoundInfo) -> NDArray[np.int64]:
    """Return the samples, those of the channels of one moment in a row; raises InvalidSound."""
    return _of_flac(data, info) if info.encoding == "flac" else _of_wav(data, info)


def _of_wav(data: bytes, info: SoundInfo) -> NDArray[np.int64]:
    width = info.bits // 8
    content = memoryview(data)[info.begin : info.begin + info.size]
    if len(content) < info.size:
        raise InvalidSound(f"has {len(content)} bytes of samples, and its header says {info.size}")
    if not content:
        raise InvalidSound("has no samples")
    if len(content) % (width * info.channels):
        raise InvalidSound("ends in the middle of a sample")
    if len(content) // width > MOST_SAMPLES:
        raise _too_long(len(content) // width)
    if width == 1:  # alone without a sign
        return np.frombuffer(content, np.uint8).astype(np.int64) - 128
    if width == 3:
        parts = np.frombuffer(content, np.uint8).reshape(-1, 3).astype(np.int64)
        wide = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
        return np.where(wide >= 1 << 23, wide - (1 << 24), wide)
    return np.frombuffer(content, f"<i{width}").astype(np.int64)


def _of_flac(data: bytes, info: SoundInfo) -> NDArray[np.int64]:
    library = sound_library()
    try:
        with library.SoundFile(io.BytesIO(data)) as file:
            if not 0 < file.frames * info.channels <= MOST_SAMPLES:
                raise (
                    _too_long(file.frames * info.channels) if file.frames else InvalidSound("has no samples")
                )
            decoded: NDArray[np.int32] = file.read(dtype="int32", always_2d=True)
            if len(decoded) != file.frames:
                raise InvalidSound("ends in the middle")
    except library.LibsndfileError as error:
        raise InvalidSound(f"cannot be decoded ({str(error).rstrip('.')})") from error
    # libsndfile fills 32 bits from above
    return (decoded.astype(np.int64) >> (32 - info.bits)).ravel()


def _too_long(count: int) -> InvalidSound:
    return InvalidSound(f"has {count} samples, and at most {MOST_SAMPLES} are read", "Cut it into pieces.")


@cache
def sound_library() -> Any:
    """Return the binding of libsndfile; raises ConfigError where it is not installed."""
    try:
        import soundfile  # noqa: PLC0415  only for FLAC
    except (ImportError, OSError) as error:  # OSError: it is installed without libsndfile
        raise ConfigError(
            "Reading FLAC needs soundfile, which is not installed.",
            hint="Install it: pip install soundfile.",
        ) from error
    return soundfile
