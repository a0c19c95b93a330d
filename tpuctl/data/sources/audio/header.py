"""Reads the headers of WAV and FLAC files: samples a second, channels, bits; decodes nothing."""

from __future__ import annotations

import struct
from typing import NamedTuple

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
