"""Several files of a folder as a source, by a pattern: on the disk and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.source_trees import examples, no_progress, opened, produce
from tests.data.sources.annotated.test_webdataset import sample, shard
from tests.data.trees.bucket_sources import copy
from tests.data.trees.test_sources_in_buckets import planned
from tpuctl.cloud.endpoints import Cloud
from tpuctl.data.options import Options
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import name_pattern
from tpuctl.errors import UsageError


def read(path: Path) -> Source:
    return opened(open_source(path, None, Options(), no_progress))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Four tables, and a file that no pattern here means."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for number in range(4):
        (folder / f"part-{number:02}.csv").write_text(f"n\n{number}\n")
    (folder / "notes.csv").write_text("other,columns\n1,2\n")
    return folder


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("part-*.csv", [0, 1, 2, 3]),
        ("part-0?.csv", [0, 1, 2, 3]),
        ("part-0[13].csv", [1, 3]),
        ("part-{00..02}.csv", [0, 1, 2]),
        ("part-{02..00}.csv", [0, 1, 2]),
        ("part-0{1,3}.csv", [1, 3]),
        ("part-{0,0}{1..2}.csv", [1, 2]),
        ("part-{01..01}.csv", [1]),
        ("{part,none}-*.csv", [0, 1, 2, 3]),
    ],
)
def test_a_pattern_is_the_files_that_it_means(tables: Path, pattern: str, numbers: list[int]) -> None:
    assert [record["n"] for record in examples(read(tables / pattern))] == [[n] for n in numbers]


def test_a_file_that_is_called_as_a_pattern_is_read_itself(tables: Path) -> None:
    (tables / "part-{00..02}.csv").write_text("n\n9\n")
    assert [record["n"] for record in examples(read(tables / "part-{00..02}.csv"))] == [[9]]


@pytest.mark.parametrize("text", ["a.csv", "a{b}.csv", "a{1..x}", "{}", "a{..}"])
def test_other_names_are_no_patterns(text: str) -> None:
    assert name_pattern(text) is None


def test_shards_of_webdataset_are_named_by_braces(tmp_path: Path, cloud: Cloud) -> None:
    for number in range(3):
        shard(tmp_path / "shards" / f"train-{number:04}.tar", sample(str(number), number))
    source = read(tmp_path / "shards" / "train-{0000..0001}.tar")
    assert (source.kind, [record["label"] for record in examples(source)]) == ("webdataset", [[0], [1]])
    uri = copy(cloud.bucket, tmp_path / "shards", "raw/shards")
    here = planned(cloud, tmp_path / "shards" / "train-{0001..0002}.tar")
    assert produce(planned(cloud, f"{uri}/train-{{0001..0002}}.tar")) == produce(here)


def test_a_pattern_in_a_bucket_is_that_on_the_disk(tables: Path, cloud: Cloud) -> None:
    uri = copy(cloud.bucket, tables, "raw/tables")
    assert produce(planned(cloud, f"{uri}/part-*.csv")) == produce(planned(cloud, tables / "part-*.csv"))
    with pytest.raises(UsageError, match=r"There is no file 'x\*' in 'gs://.*/raw/tables'"):
        planned(cloud, f"{uri}/x*")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("part-{00..04}.csv", "'part-{{00..04}}.csv' names 'part-04.csv', not in '{}'."),
        (
            "part-{2..9}.csv",
            "'part-{{2..9}}.csv' names 'part-2.csv' and 7 more, not in '{}'.",
        ),
        ("x*.csv", "There is no file 'x*.csv' in '{}'."),
        ("{0..999999}", "'{{0..999999}}' means more than 100000 files."),
        ("{0..999}{0..999}", "'{{0..999}}{{0..999}}' means more than 100000 files."),
    ],
)
def test_what_a_pattern_names_and_is_not_there_is_said(tables: Path, pattern: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tables / pattern)
    assert caught.value.message == message.format(tables)


def test_a_file_that_appears_under_way_is_noticed_if_the_pattern_means_it(tables: Path) -> None:
    source = read(tables / "part-*.csv")
    (tables / "other.csv").write_text("n\n7\n")
    source.check()
    (tables / "part-04.csv").write_text("n\n7\n")
    with pytest.raises(UsageError, match=r"'part-04\.csv' is new"):
        source.check()
