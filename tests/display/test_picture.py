"""Tests a picture that a notebook shows."""

from __future__ import annotations

from pathlib import Path

from tpuctl.display.picture import Picture

PICTURE = Picture(b"\x89PNG", "2 pictures of pets", ("cannot be decoded",))


def test_it_shows_itself_as_png_and_says_what_it_is() -> None:
    assert PICTURE._repr_png_() == b"\x89PNG"
    assert repr(PICTURE) == "<2 pictures of pets, 1 not drawn: .save('FILE.png')>"


def test_it_is_saved_into_a_file(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes() == b"\x89PNG"
