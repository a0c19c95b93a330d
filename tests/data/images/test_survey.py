"""What a survey says of all odd files at once, from this disk and from a tree whose ranges are requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests.data.images.zoo.files import ZOO
from tests.data.images.zoo.pictures import save
from tpuctl.data.files.listing import Listing, list_class_folders
from tpuctl.data.images.rule import ImageRule
from tpuctl.data.images.survey import Survey
from tpuctl.data.trees.local import LocalTree
from tpuctl.data.trees.tree import ListedFile


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
