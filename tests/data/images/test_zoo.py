"""Odd files: what the plan says of each by its header, and what becomes of it.

What a survey says of all odd files at once, from this disk and from a tree whose ranges are requests.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.images.zoo import BLUE, GREEN, PLACES, PRIMARIES, RED, SIZE, ZOO, OddFile, save
from tpuctl.data.files.listing import Listing, list_class_folders
from tpuctl.data.images.header import InvalidImage, look
from tpuctl.data.images.report import conversion_of
from tpuctl.data.images.rule import ImageRule
from tpuctl.data.images.survey import Survey, look_at_file
from tpuctl.data.trees.local import LocalTree
from tpuctl.data.trees.tree import ListedFile

RULE = ImageRule(3)
NEAR = 12
"""How far a colour may be from that of the picture, after a conversion with loss."""
SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))


def usable(odd: OddFile) -> bool:
    """Tell whether a file is kept or converted."""
    return not odd.why.startswith("bad")


def verdict_by_parts(data: bytes) -> str:
    """What the plan says, which reads parts of a file."""
    try:
        info = look_at_file(lambda at, size: data[at : at + size], len(data))
        RULE.check(info)
    except InvalidImage as error:
        return f"bad: {error}"
    return ", ".join(RULE.reasons(info))


@pytest.mark.parametrize("name", ZOO)
def test_every_odd_file_is_kept_converted_or_bad_for_its_reason(name: str) -> None:
    data, why = ZOO[name].make(), ZOO[name].why
    if why.startswith("bad: "):
        assert verdict_by_parts(data).startswith(why)
        with pytest.raises(InvalidImage) as refused:
            RULE.apply(data)
        assert f"bad: {refused.value}".startswith(why)
        return
    assert verdict_by_parts(data) == why
    final, info = RULE.apply(data)
    assert (final == data) == (not why)
    assert conversion_of(final) == why
    assert (info.channels, info.dtype, info.encoding in ("png", "jpeg")) == (3, "uint8", True)
    assert RULE.reasons(look(final)) == ()
    assert RULE.apply(data)[0] == final


@pytest.mark.parametrize("name", [name for name, odd in ZOO.items() if usable(odd) and odd.colours])
def test_what_is_used_shows_the_picture_upright_in_its_colours(name: str) -> None:
    with Image.open(io.BytesIO(RULE.apply(ZOO[name].make())[0])) as image:
        assert image.size == SIZE
        colours = [image.convert("RGB").getpixel(place) for place in PLACES]
    assert near(colours, ZOO[name].colours)


@pytest.mark.parametrize(
    ("file", "name"),
    [("adobe-rgb.jpg", "Adobe RGB"), ("display-p3.jpg", "Display P3"), ("profile-long.jpg", "Adobe RGB"),
     ("adobe-rgb.png", "Adobe RGB"), ("display-p3.webp", "Display P3")],
)  # fmt: skip
def test_the_colours_of_another_profile_are_those_of_srgb(file: str, name: str) -> None:
    with Image.open(io.BytesIO(RULE.apply(ZOO[file].make())[0])) as image:
        colours = [image.convert("RGB").getpixel(place) for place in PLACES]
    assert near(colours, [in_srgb(colour, name) for colour in (RED, GREEN, BLUE)])
    assert not near(colours, (RED, GREEN, BLUE))


def in_srgb(colour: tuple[int, ...], name: str) -> list[int]:
    """Change a colour by the matrices of both profiles; the curve is that of sRGB in both."""
    scaled = np.array(colour) / 255
    light = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    ours = np.linalg.inv(np.array(SRGB).T) @ np.array(PRIMARIES[name]).T @ light
    ours = ours.clip(0, 1)
    encoded = np.where(ours <= 0.0031308, ours * 12.92, 1.055 * ours ** (1 / 2.4) - 0.055)
    return [round(value * 255) for value in encoded.tolist()]


def near(colours: Sequence[object], expected: object) -> bool:
    """Tell whether colours are alike, as far as an encoding with loss keeps them."""
    return bool(np.abs(np.array(colours, int) - np.array(expected, int)).max() <= NEAR)


def test_there_are_sixty_odd_files_and_more() -> None:
    assert len(ZOO) >= 100
    assert {odd.why.startswith("bad") for odd in ZOO.values()} == {True, False}


class Elsewhere(LocalTree):
    """Files that are not on this disk, as far as a reader can tell."""

    def local_path(self, file: ListedFile) -> Path:
        return None  # type: ignore[return-value]  # as a bucket's tree


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all odd files in one class, some of them larger than what is read of a file at first."""
    root = tmp_path_factory.mktemp("zoo")
    (root / "all").mkdir()
    for name, odd in ZOO.items():
        (root / "all" / name).write_bytes(odd.make())
    noise = save(Image.effect_noise((100, 100), 50).convert("RGB"), "PNG")
    (root / "all" / "large-truncated.png").write_bytes(noise[:-6])
    return root


def listing(tree: LocalTree) -> Listing:
    return list_class_folders(tree).files


def verdicts(survey: Survey, files: Listing) -> dict[str, str]:
    kinds = {files.key(index).removeprefix("all/"): survey.kind(index) for index in range(len(files))}
    return {name: f"bad: {kind.bad}" if kind.bad else ", ".join(kind.changes) for name, kind in kinds.items()}


@pytest.mark.daily
def test_every_file_gets_the_verdict_of_its_header(zoo: Path) -> None:
    files = listing(LocalTree(zoo))
    reports: list[tuple[int, int]] = []
    survey = Survey(files, lambda scanned, total: reports.append((scanned, total)))
    bad = {name for name, verdict in verdicts(survey, files).items() if verdict.startswith("bad")}
    expected = {name for name, odd in ZOO.items() if odd.why.startswith("bad")} - {"bomb-grey.png"}
    assert bad == expected | {"large-truncated.png"}  # that bomb is bad only where it is decoded
    assert {record.file.removeprefix("all/") for record in survey.bad(ImageRule(None))} == bad
    rule = survey.counts.rule(None)
    by_rule = {record.file.removeprefix("all/") for record in survey.bad(rule)}
    assert by_rule == bad | {"bomb-grey.png"}
    assert reports[-1] == (len(files), len(files))
    report = survey.counts.report(rule)
    assert (report.images, report.bad) == (len(files), len(by_rule))
    assert report.channels == 3
    reasons = Counter(
        reason for odd in ZOO.values() if not odd.why.startswith("bad") for reason in odd.why.split(", ")
    )
    assert report.reasons["from WebP"] == reasons["from WebP"] > 1
    assert report.reasons["turned upright (EXIF)"] == reasons["turned upright (EXIF)"] > 1


def test_files_elsewhere_get_the_same_but_for_their_ends(zoo: Path) -> None:
    here, there = listing(LocalTree(zoo)), listing(Elsewhere(zoo))
    ours, theirs = verdicts(Survey(here), here), verdicts(Survey(there), there)
    assert {name for name in ours if ours[name] != theirs[name]} == {"large-truncated.png"}


def test_a_file_that_cannot_be_read_is_bad(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(ZOO["drawing.png"].make())
    files = listing(LocalTree(tmp_path))
    (tmp_path / "cat" / "a.png").unlink()
    survey = Survey(files)
    assert [str(record) for record in survey.bad(ImageRule())] == [
        "'cat/a.png' cannot be read: No such file or directory"
    ]
