"""Chooses the font of a caption: the one that comes with tpuctl, or of this system for what that lacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from PIL import ImageFont

from tpuctl.text import printable

SIZE = 11
_OWN = Path(__file__).with_name("font") / "DejaVuSans.ttf"
_MISSING = "\uffff"
"""A character that no font has."""
_FOLDERS = (
    "/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "/System/Library/Fonts",
    "/Library/Fonts", "C:/Windows/Fonts",
)  # fmt: skip
_NAMES = (
    "notosanscjk", "sourcehansans", "wqy", "droidsansfallback", "arial unicode", "hiragino", "pingfang",
    "msyh", "malgun", "notosans", "unifont", "freesans", "arial",
)  # fmt: skip
"""Beginnings of files of fonts that have many characters, the best first."""
_MOST_FILES = 5000


def font_of(text: str) -> ImageFont.FreeTypeFont:
    """Return the font that has all characters of a text; that of tpuctl where none has."""
    own = _font(str(_OWN))
    if not _lacking(own, text):
        return own
    return next((font for font in _system_fonts() if not _lacking(font, text)), own)


def drawable(text: str) -> str:
    """Return a text on one line, with `?` for each character that its font lacks."""
    line = printable.line(text)
    lacking = _lacking(font_of(line), line)
    return "".join("?" if character in lacking else character for character in line)


def lacking(text: str) -> set[str]:
    """Return the characters of a text that `drawable` replaces."""
    line = printable.line(text)
    return _lacking(font_of(line), line)


def _lacking(font: ImageFont.FreeTypeFont, text: str) -> set[str]:
    return {character for character in set(text) if not character.isspace() and not _has(font, character)}


@cache
def _font(path: str) -> ImageFont.FreeTypeFont:
    # the simple layout gives the same picture with and without the library for others
    return ImageFont.truetype(path, SIZE, layout_engine=ImageFont.Layout.BASIC)


@cache
def _has(font: ImageFont.FreeTypeFont, character: str) -> bool:
    return bytes(font.getmask(character)) != bytes(font.getmask(_MISSING))


@cache
def _system_fonts() -> tuple[ImageFont.FreeTypeFont, ...]:
    return tuple(_readable(sorted(_paths(), key=_rank)))


def _paths() -> Iterator[Path]:
    """Yield the files of fonts with many characters."""
    scanned = 0
    for folder in _FOLDERS:
        for place, _, files in os.walk(os.path.expanduser(folder)):
            for name in files:
                scanned += 1
                if scanned > _MOST_FILES:
                    return
                if name.lower().startswith(_NAMES) and name.lower().endswith((".ttf", ".ttc", ".otf")):
                    yield Path(place) / name


def _rank(path: Path) -> tuple[int, str]:
    name = path.name.lower()
    return next(rank for rank, begin in enumerate(_NAMES) if name.startswith(begin)), str(path)


def _readable(paths: list[Path]) -> Iterator[ImageFont.FreeTypeFont]:
    for path in paths:
        try:
            yield _font(str(path))
        except OSError:
            continue
