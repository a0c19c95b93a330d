"""The sources of benchmarks/datasets: JPEG files in class folders, and a table of small rows."""

from __future__ import annotations

import csv
import io
import os
import random
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 20
ORIGINALS = 64
"""Pictures that are drawn and encoded; the files are these, each with a comment of its own."""
SMALLEST, LARGEST = 60_000, 160_000
"""Bytes of a file."""
COLUMNS = ("id", "length", "width", "height", "weight", "colour", "comment", "label")


def images(folder: Path, files: int) -> Path:
    """Make JPEG files in class folders: no two of them the same."""
    originals = [_picture(number) for number in range(ORIGINALS)]
    for number in range(files):
        path = folder / f"class_{number % CLASSES:02}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_with_comment(originals[number * 7 % ORIGINALS], f"number {number:06}".encode()))
    return folder


def linked(folder: Path, source: Path, times: int) -> Path:
    """Make a tree with every file of `source` so many times, as hard links: large, and nothing is copied."""
    for path in sorted(source.rglob("*.jpg")):
        for time in range(times):
            target = folder / path.parent.name / f"{path.stem}_{time}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    return folder


def rows(path: Path, count: int) -> Path:
    """Make a CSV file with numbers, a category, a text and a class."""
    rng = random.Random(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for number in range(count):
            sizes = [round(rng.uniform(0, 100), 3) for _ in range(4)]
            colour = rng.choice(("red", "green", "blue"))
            writer.writerow([number, *sizes, colour, f"row {number} of many", rng.randrange(10)])
    return path


def _picture(number: int) -> bytes:
    """Encode a gradient with noise at the quality that brings it between the bounds."""
    rng = np.random.default_rng(number)
    height, width = 375, 500
    size = LARGEST - (LARGEST - SMALLEST) * (number + 0.5) / (ORIGINALS * 1.1)
    down, across = np.mgrid[0:height, 0:width]
    slope = 127 + 90 * np.sin(down / (20 + number)) * np.cos(across / (30 + number))
    grain = rng.normal(0, 22, (height, width, 3))
    pixels = np.clip(slope[..., None] + grain, 0, 255).astype(np.uint8)
    encoded = (_encoded(pixels, quality) for quality in range(96, 30, -2))
    return next(data for data in encoded if len(data) <= size)


def _encoded(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], quality: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _with_comment(data: bytes, comment: bytes) -> bytes:
    return data[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + data[2:]
