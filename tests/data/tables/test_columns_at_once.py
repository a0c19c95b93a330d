"""Columns at once give the bytes, and the words about bad rows, of one row after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.data.source_trees import no_progress
from tests.data.tables.hostile_arrow import write_parquet
from tests.data.tables.hostile_tables import csv_table
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.plan import plan
from tpuctl.data.source import Observations
from tpuctl.data.sources import csv_files
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tables.columns import Columns
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.errors import UsageError

TABLES = 50
NO_TYPES: Mapping[str, str] = {}


def reading(file: Path, seed: int, types: Mapping[str, str] = NO_TYPES) -> object:
    """What a reader says of a file, and its records in a shuffled order; or why it refuses the file."""
    try:
        source = open_source(file, None, Options(types=dict(types)), no_progress)
    except UsageError as error:
        return error.message, error.hint
    order = np.random.default_rng(seed).permutation(sum(part.records for part in source.parts))
    records = list(source.read(order, Observations()))
    labels = None if source.labels is None else source.labels.tolist()
    source.close()
    return source.features, source.supervised, source.parts, labels, records


def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no rows of CSV files are split at once."""
    monkeypatch.setattr(csv_files, "split_cells", lambda *arguments: None)


def test_hostile_tables_are_read_as_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.csv"
    at_once = []
    for seed in range(TABLES):
        file.write_bytes(csv_table(seed))
        at_once.append(reading(file, seed))
    row_by_row(monkeypatch)
    for seed in range(TABLES):
        file.write_bytes(csv_table(seed))
        assert reading(file, seed) == at_once[seed], seed


def test_hostile_parquet_files_are_read_as_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.parquet"
    at_once = [reading(file, seed, write_parquet(file, seed)) for seed in range(TABLES)]
    monkeypatch.setattr(Columns, "frames", lambda *arguments: None)
    for seed in range(TABLES):
        assert reading(file, seed, write_parquet(file, seed)) == at_once[seed], seed


def test_the_hostile_tables_take_both_ways(tmp_path: Path) -> None:
    file, frames, bad = tmp_path / "rows.csv", 0, 0
    for seed in range(TABLES):
        file.write_bytes(csv_table(seed))
        try:
            source = open_source(file, None, Options(), no_progress)
        except UsageError:
            continue
        count = sum(part.records for part in source.parts)
        blocks = list(source.blocks(np.arange(count), Observations()))
        frames += any(isinstance(block, Frames) for block in blocks)
        bad += any(isinstance(block, BadRecord) for block in blocks)
        source.close()
    assert frames > TABLES // 3
    assert bad > TABLES // 10


def test_shards_have_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.csv"
    rows = [f'{n},{n / 7},"a ""quoted"" {n}",{"x" * (n % 300)},{n % 3}' for n in range(5_000)]
    file.write_text("\n".join(["n,x,text,long,label", *rows]))
    shards = []
    for _ in range(2):
        made = plan(file, name="rows", splits="train=0.8,test=0.2", shards=2)
        shards.append([b"".join(shard.stream()) for shard in made.shards()])
        made.source.close()
        row_by_row(monkeypatch)
    assert shards[0] == shards[1]
