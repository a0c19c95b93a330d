"""Writes small inputs with the libraries that make such files: python tests/golden/make.py FOLDER.

Needs `pip install datasets webdataset`, in an environment of its own. The files beside this program were
written by datasets 5.2.0 and webdataset 1.0.2.
"""

from __future__ import annotations

import sys
from pathlib import Path

import datasets
import numpy as np
import webdataset
from PIL import Image

FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog", "cow"]),
        "tags": datasets.Sequence(datasets.ClassLabel(names=["red", "blue"])),
        "text": datasets.Value("string"),
        "grid": datasets.Array2D((2, 3), "float32"),
    }
)


def main(folder: Path) -> None:
    images = [Image.new("RGB", (4, 3), (number, 2, 3)) for number in range(3)]
    columns = {
        "image": images,
        "label": [0, 1, 0],
        "tags": [[0, 1], [], [1]],
        "text": ["a", "b", "c"],
        "grid": [np.full((2, 3), number, np.float32) for number in range(3)],
    }
    rows = datasets.Dataset.from_dict(columns, features=FEATURES)
    rows.to_parquet(folder / "huggingface" / "rows.parquet")
    datasets.DatasetDict({"train": rows, "test": rows.select([2, 0])}).save_to_disk(folder / "saved")
    rows.select([1]).save_to_disk(folder / "saved_rows")
    (folder / "shards").mkdir(exist_ok=True)
    with webdataset.ShardWriter(str(folder / "shards" / "train-%04d.tar.gz"), maxcount=2) as writer:
        for number, image in enumerate(images):
            texts = {"txt": f"text {number}", "json": {"number": number}}
            writer.write({"__key__": f"{number:03}", "png": image, "cls": number % 2, **texts})


main(Path(sys.argv[1]))
