"""Decodes sounds to whole numbers, as TFDS's Audio holds them."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.sources.audio.header import InvalidSound, SoundInfo
from tpuctl.errors import ConfigError

MOST_SAMPLES = 1 << 25
"""Samples of a sound, of all channels: a quarter of a gigabyte when they are decoded."""


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
