"""Reads sounds: WAV by its own header, FLAC by libsndfile.

- Reads the headers of WAV and FLAC files: samples a second, channels, bits; decodes nothing.
- Defines the rule that all sounds of a field follow: the rate and the channels that most of them have.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.features import Audio
from tpuctl.data.tfrecord.example_encoding import packed_ints
from tpuctl.errors import ConfigError

HEAD = 1 << 16
"""Bytes of a file in which its header is looked for."""
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_WIDTHS = (8, 16, 24, 32)
_MOST_CHANNELS = 64


class InvalidSound(ValueError):
    """No WAV or FLAC file, or a damaged one; the text completes a sentence about it: `is empty`."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


class SoundInfo(NamedTuple):
    """What a header says of the samples."""

    encoding: str
    """`wav` or `flac`."""
    rate: int
    channels: int
    bits: int
    begin: int
    """Where the samples begin in a WAV file."""
    size: int
    """Bytes of them there."""

    @property
    def rule(self) -> tuple[int, int]:
        """What all sounds of a source have in common: rate and channels."""
        return self.rate, self.channels


def inspect_sound(head: bytes) -> SoundInfo:
    """Return what the beginning of a file says; raises InvalidSound."""
    if not head:
        raise InvalidSound("is empty")
    try:
        if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
            return _checked(_wav(head))
        if head.startswith(b"fLaC"):
            return _checked(_flac(head))
    except (struct.error, IndexError):
        raise InvalidSound("ends in the middle of its header") from None
    raise InvalidSound("is not a WAV or FLAC file", "Convert it: ffmpeg -i OLD NEW.flac")


def _checked(info: SoundInfo) -> SoundInfo:
    if not info.rate or not 0 < info.channels <= _MOST_CHANNELS or info.bits not in _WIDTHS:
        what = f"{info.rate} samples a second, {info.channels} channels and {info.bits} bits"
        raise InvalidSound(f"has {what}, which is not read")
    return info


def _wav(head: bytes) -> SoundInfo:
    """Return what the chunks before the samples say (RIFF: id, size and content of each, to even sizes)."""
    at, form = 12, None
    while True:
        kind, size = struct.unpack_from("<4sI", head, at)
        if kind == b"fmt ":
            form = struct.unpack_from("<HHIIHH", head, at + 8)
            code = struct.unpack_from("<H", head, at + 32)[0] if form[0] == _EXTENSIBLE else form[0]
            if code == _FLOAT:
                raise InvalidSound(
                    "has floating-point samples, and whole numbers are stored",
                    "Convert it: ffmpeg -i OLD -c:a pcm_s16le NEW",
                )
            if code != _PCM:
                raise InvalidSound("has compressed samples", "Convert it: ffmpeg -i OLD -c:a pcm_s16le NEW")
        if kind == b"data":
            if form is None:
                raise InvalidSound("has samples before their format")
            return SoundInfo("wav", form[2], form[1], form[5], at + 8, size)
        at += 8 + size + size % 2


def _flac(head: bytes) -> SoundInfo:
    """Return what the first block, STREAMINFO, says (RFC 9639, 8.2)."""
    (packed,) = struct.unpack_from(">Q", head, 18)
    rate, channels, bits = packed >> 44, (packed >> 41 & 7) + 1, (packed >> 36 & 31) + 1
    return SoundInfo("flac", rate, channels, bits, 0, 0)


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
