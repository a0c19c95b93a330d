"""Write the UCI handwritten digits that ship with scikit-learn as PNG files in class folders.

    python demo/write_digits.py FOLDER

creates FOLDER/train/<digit>/<number>.png (1,437 images) and FOLDER/test/<digit>/<number>.png (360 images, a
fifth of every digit, always the same ones).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

SEED = 0
TEST_IMAGES = 360
BRIGHTEST = 16
"""Grey values of the dataset are 0 to 16."""


def write_digits(folder: Path) -> dict[str, int]:
    """Write all images below `folder`; returns the number of images in each split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    numbers = range(len(digits.target))
    train, test = train_test_split(numbers, test_size=TEST_IMAGES, stratify=digits.target, random_state=SEED)
    for split, chosen in (("train", train), ("test", test)):
        for number in chosen:
            path = folder / split / str(digits.target[number]) / f"{number:04d}.png"
            _write_image(path, digits.images[number])
    return {"train": len(train), "test": len(test)}


def _write_image(path: Path, pixels: Any) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels * 255 / BRIGHTEST).round().astype("uint8")).save(path)


def main() -> None:
    """Write the images and print their number."""
    parser = argparse.ArgumentParser(description="Write the UCI handwritten digits as PNG files.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    written = write_digits(folder)
    print(f"wrote {written['train']} training and {written['test']} test images of 10 digits to {folder}")


if __name__ == "__main__":
    main()
