"""Tells whether an embedded colour profile (ICC) means other colours than sRGB, which all readers assume."""

from __future__ import annotations

import struct
from functools import lru_cache

_COLORANTS = {
    b"rXYZ": (0.4361, 0.2225, 0.0139),
    b"gXYZ": (0.3851, 0.7169, 0.0971),
    b"bXYZ": (0.1431, 0.0606, 0.7141),
}
"""The primaries of sRGB as its profiles write them, adapted to D50 (IEC 61966-2-1)."""
_NEAR = 0.004
_MIDDLE, _MIDDLE_NEAR = 0.214, 0.02
"""Light of sRGB at half of the scale; gamma 2.2 has 0.218."""
_MOST_TAGS = 100
_LARGEST_KEPT = 1 << 16
"""Bytes of a profile whose answer is kept, with the profile itself: programs write few, and small ones."""


def changes_colours(profile: bytes) -> bool:
    """Tell whether the profile is of RGB or CMYK with other colours than sRGB.

    One that cannot be read is passed over, as all readers do; so is that of a grey picture.
    """
    is_large = isinstance(profile, bytes) and len(profile) > _LARGEST_KEPT  # a TIFF may have any value there
    return (_answer if is_large else _kept_answer)(profile)


def _answer(profile: bytes) -> bool:
    try:
        space = profile[16:20]
        if space == b"CMYK":
            return True
        tags = _tags(profile)
        if space != b"RGB ":
            return False
        if not all(name in tags for name in _COLORANTS):
            return b"A2B0" in tags  # a table in place of primaries, as scanners have it
        return not (_are_primaries(tags) and _is_curve(tags[b"gTRC"]))
    except (
        struct.error,
        KeyError,
        IndexError,
        ArithmeticError,
        TypeError,
    ):  # a TIFF may have any value there
        return False


_kept_answer = lru_cache(256)(_answer)


def _tags(profile: bytes) -> dict[bytes, bytes]:
    (count,) = struct.unpack_from(">I", profile, 128)
    entries = (struct.unpack_from(">4sII", profile, 132 + 12 * n) for n in range(min(count, _MOST_TAGS)))
    return {name: profile[start : start + size] for name, start, size in entries}


def _are_primaries(tags: dict[bytes, bytes]) -> bool:
    return all(
        abs(value / 65536 - expected) < _NEAR
        for name, colour in _COLORANTS.items()
        for value, expected in zip(struct.unpack_from(">3i", tags[name], 8), colour, strict=True)
    )


def _is_curve(curve: bytes) -> bool:
    """Tell whether a curve has the light of sRGB in its middle."""
    return abs(_middle(curve) - _MIDDLE) < _MIDDLE_NEAR


def _middle(curve: bytes) -> float:
    """Return the light at half of the scale."""
    if curve[:4] == b"para":
        kind, gamma = struct.unpack_from(">H2xi", curve, 8)
        a, b = struct.unpack_from(">2i", curve, 16) if kind else (65536, 0)
        return float(max((a / 2 + b) / 65536, 0.0) ** (gamma / 65536))
    (count,) = struct.unpack_from(">I", curve, 8)
    if count < 2:
        (gamma,) = struct.unpack_from(">H", curve, 12) if count else (256,)
        return float(0.5 ** (gamma / 256))
    (value,) = struct.unpack_from(">H", curve, 12 + 2 * (count // 2))
    return float(value) / 65535
