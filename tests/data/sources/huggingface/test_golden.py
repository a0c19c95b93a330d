"""Files that `datasets` and `webdataset` wrote: tests/golden/make.py."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from tests.data.source_trees import examples, no_progress, opened
from tests.paths import ROOT
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.schema.features import Label, Several, Tensor, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source

GOLDEN = ROOT / "tests" / "golden"
FEATURES = {
    "image": ImageFeature((None, None, 3)),
    "label": Label(("cat", "dog", "cow")),
    "tags": Several(Label(("red", "blue"))),
    "text": Text(),
    "grid": Tensor("float32", (2, 3)),
}


def read(path: Path) -> Source:
    return opened(open_source(path, None, Options(), no_progress))


def plain(source: Source) -> list[tuple[object, ...]]:
    """The records without their pictures, but for the red of the first pixel."""
    rows = []
    for record in examples(source):
        (image,) = record.pop("image")
        assert isinstance(image, bytes)
        red = Image.open(io.BytesIO(image)).getpixel((0, 0))
        rows.append((red, *record.values()))
    return rows


def row(number: int) -> tuple[object, ...]:
    """A record of make.py: grid, label, tags, text."""
    tags = ([0, 1], [], [1])[number]
    return ((number, 2, 3), [float(number)] * 6, [number % 2], tags, [b"abc"[number : number + 1]])


def test_parquet_of_datasets_has_its_classes_lists_and_arrays() -> None:
    source = read(GOLDEN / "huggingface")
    assert source.kind == "parquet"
    assert source.features == FEATURES
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1, 0]
    assert plain(source) == [row(0), row(1), row(2)]


def test_a_saved_dict_has_its_splits() -> None:
    source = read(GOLDEN / "saved")
    assert source.kind == "saved"
    assert source.features == FEATURES
    assert {part.split: part.records for part in source.parts} == {"train": 3, "test": 2}
    rows = {"train": [row(0), row(1), row(2)], "test": [row(2), row(0)]}
    assert plain(source) == [record for part in source.parts for record in rows[part.split]]


def test_a_saved_dataset_is_in_no_split() -> None:
    source = read(GOLDEN / "saved_rows")
    assert [(part.split, part.records) for part in source.parts] == [("", 1)]
    assert plain(source) == [row(1)]


@pytest.mark.parametrize("path", ["shards"])
def test_shards_of_webdataset_are_its_samples(path: str) -> None:
    source = read(GOLDEN / path)
    assert (source.kind, [(part.split, part.records) for part in source.parts]) == (
        "webdataset",
        [("train", 3)],
    )
    records = [
        {name: values for name, values in record.items() if name != "image"} for record in examples(source)
    ]
    assert records == [
        {"label": [number % 2], "number": [number], "text": [f"text {number}".encode()]}
        for number in range(3)
    ]
