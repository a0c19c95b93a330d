"""Sizes that the documentation names are those that hold."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT
from tpuctl.data import tokens
from tpuctl.data.files import rows
from tpuctl.data.images import header, survey
from tpuctl.data.sources import parquet_files, tfrecord_files
from tpuctl.data.sources.annotated import metadata
from tpuctl.data.sources.annotated import records as annotated_rows
from tpuctl.data.tables import csv_cells
from tpuctl.data.trees import objects

DOCUMENT = " ".join((ROOT / "docs" / "datasets.md").read_text().split())
UNITS = {"": 1, "kB": 1000, "MB": 10**6, "GB": 10**9, "MiB": 1 << 20}


@pytest.mark.parametrize(
    ("sentence", "sizes"),
    [
        (r"one of up to (1 MiB) is fetched whole then", [objects.LARGEST_REMEMBERED]),
        (r"kept until it is converted: (134 MB) in memory", [objects.MOST_IN_MEMORY]),
        (r"in memory, up to (8.6 GB) in `TMPDIR`", [objects.MOST_ON_DISK]),
        (r"of others the first (4 kB) are fetched", [survey._HEADS[0]]),
        (r"are copied to `TMPDIR`, up to (17.2 GB)", [rows.MOST_COPIED]),
        (r"or from (20,000) rows \(8 MB\) spread", [rows._SAMPLE, metadata._SAMPLE, annotated_rows._SAMPLE]),
        (
            r"rows \((8 MB)\) spread evenly",
            [rows._SAMPLE_BYTES, metadata._SAMPLE_BYTES, annotated_rows._SAMPLE_BYTES],
        ),
        (r"one integer is larger than (16,777,216)", [csv_cells._EXACT]),
        (r"all pictures in up to (1 GB) of Parquet", [parquet_files._MOST_COUNTED]),
        (r"Parquet or up to (1,000) records", [tfrecord_files._SAMPLE]),
        (r"made from the (100,000) most frequent words", [tokens.MOST_WORDS]),
        (r"pictures of more than (134) megapixels", [header.MOST_PIXELS // 10**6]),
    ],
)
def test_a_size_is_as_documented(sentence: str, sizes: list[int]) -> None:
    found = re.search(sentence, DOCUMENT)
    assert found, sentence
    number, _, unit = found[1].replace(",", "").partition(" ")
    for size in sizes:
        shown = f"{size / UNITS[unit]:.1f}"
        assert shown.removesuffix(".0") == number or round(float(shown)) == int(float(number))
