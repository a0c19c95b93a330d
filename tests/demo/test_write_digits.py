"""The demo's dataset is written as PNG files in class folders, always in the same way."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests.paths import ROOT

pytestmark = pytest.mark.slow

WRITE = ROOT / "demo" / "write_digits.py"


def write(folder: Path) -> str:
    process = subprocess.run([sys.executable, WRITE, folder], capture_output=True, text=True, check=True)
    return process.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "digits"
    assert write(folder) == f"wrote 1437 training and 360 test images of 10 digits to {folder}\n"
    return folder


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.png")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def test_a_fifth_of_every_digit_is_held_out(folder: Path) -> None:
    counts = {
        split: Counter(path.parent.name for path in (folder / split).glob("*/*.png"))
        for split in ("train", "test")
    }
    assert (sum(counts["train"].values()), sum(counts["test"].values())) == (1437, 360)
    for digit in map(str, range(10)):
        assert counts["test"][digit] / (counts["test"][digit] + counts["train"][digit]) == pytest.approx(
            0.2, abs=0.01
        )


def test_no_image_is_in_both_splits(folder: Path) -> None:
    train, test = ({path.name for path in (folder / split).glob("*/*.png")} for split in ("train", "test"))
    assert not train & test


def test_images_are_greyscale_and_use_the_full_range(folder: Path) -> None:
    with Image.open(next((folder / "train" / "0").glob("*.png"))) as image:
        assert (image.mode, image.size, image.format) == ("L", (8, 8), "PNG")
        assert image.getextrema()[0] == 0
        assert image.getextrema()[1] > 200


def test_it_is_written_the_same_way_each_time(folder: Path, tmp_path: Path) -> None:
    write(tmp_path)
    assert fingerprint(tmp_path) == fingerprint(folder)
