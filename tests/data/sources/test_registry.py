"""Which reader a source gets, and how many rows are in memory at once."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.data.source_trees import no_progress, opened, write_image
from tpuctl.data.options import Options
from tpuctl.data.sources.registry import batch_rows, cautious_rows, kind_of, open_source
from tpuctl.data.tables.parquet import Chunk, Footer, Group
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tree: LocalTree, folder: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(LocalTree, "scan", refuse)
    with pytest.raises(UsageError, match=f"Cannot read '{tmp_path}': Permission denied"):
        open_source(tmp_path, None, Options(), no_progress)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with pytest.raises(UsageError, match=r"'rows.csv' is no regular file"):
        open_source(tmp_path / "rows.csv", None, Options(), no_progress)


def test_a_source_imports_its_own_reader_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    program = """
import sys
from pathlib import Path
from tpuctl.data.options import Options
from tpuctl.data.sources.registry import READERS, open_source
open_source(Path(sys.argv[1]), None, Options(), lambda done, total: None).close()
places = {f"tpuctl.data.sources.{reader.place.rpartition('.')[0]}" for reader in READERS.values()}
print(*sorted(places & sys.modules.keys()))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "rows.csv")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["tpuctl.data.sources.csv_files"]


def touch(root: Path, *names: str) -> Path:
    """Write tables, texts and pictures, by the endings of their names."""
    for name in names:
        if name.endswith(".png"):
            write_image(root / name)
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text('{"n": 1}\n' if name.endswith("jsonl") else "n\n1\n")
    return root


@pytest.mark.parametrize(
    ("names", "kind", "also"),
    [
        (["a.csv", "b.jsonl"], "jsonl", ("csv",)),
        (["cat/1.png", "labels.csv"], "images", ("csv",)),
        (["cat/1.png", "cat/1.txt.txt", "a.csv", "b.jsonl"], "images", ("jsonl", "csv", "text")),
        (["a.png", "metadata.csv"], "metadata", ()),
        (["a.csv", "README.txt", "LICENSE", ".hidden.jsonl"], "csv", ()),
        (["cat/1.png", "dog/1.png"], "images", ()),
        (["1.png", "1.cls", "1.txt"], "webdataset", ()),
        (["pos/1.txt", "neg/1.txt", "index.csv"], "csv", ("text",)),
    ],
)
def test_formats_that_are_there_besides_the_chosen_one_are_told(
    tmp_path: Path, names: list[str], kind: str, also: tuple[str, ...]
) -> None:
    tree = LocalTree(touch(tmp_path, *names))
    chosen = kind_of(tree)
    assert (chosen.kind, chosen.also) == (kind, also)


def test_a_format_that_the_user_chose_is_all_that_is_told(tmp_path: Path) -> None:
    root = touch(tmp_path, "a.csv", "b.jsonl")
    assert opened(open_source(root, None, Options(), no_progress)).also == ("csv",)
    assert opened(open_source(root, "csv", Options(), no_progress)).also == ()


KINDS = """
tfds: dataset_info.json features.json x.tfrecord
tfrecord: dataset_info.json x.tfrecord
tfrecord: x.tfrecords.gz
saved: state.json data-00000-of-00001.arrow
webdataset: a.tar b.tar
webdataset: a/1.cls a/1.txt
metadata: metadata.jsonl a.png
metadata: train/metadata.csv train/a.wav
metadata: metadata.parquet a.flac
parquet: metadata.parquet
parquet: a.parquet b.csv
coco: instances.json a.png
masks: images/1.png masks/1.png
jsonl: a.ndjson
csv: a.tsv.gz
numpy: a.npz
idx: train-images-idx3-ubyte
text: pos/1.txt
text: pos/1.TEXT
audio: yes/1.wav
audio: yes/1.FLAC
images: cat/1.png x.wav
images: cat/1.png a.txt
images: nothing.xyz
"""


@pytest.mark.parametrize("line", KINDS.strip().splitlines())
def test_the_names_of_files_show_the_kind(tmp_path: Path, line: str) -> None:
    kind, _, names = line.partition(": ")
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert kind_of(LocalTree(tmp_path)).kind == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", "csv"), ("a.PARQUET", "parquet"), ("a.tfrecord", "tfrecord"), ("a.npy", "numpy")],
)
def test_the_name_of_a_single_file_shows_its_kind(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).touch()
    assert kind_of(LocalTree.at(tmp_path / name)).kind == kind


@pytest.mark.parametrize("name", ["a.xyz", "a.png", "a.wav", "a.txt", "metadata.json"])
def test_a_single_file_of_another_name_is_no_source(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError) as refused:
        kind_of(LocalTree.at(tmp_path / name))
    assert refused.value.message == f"'{tmp_path / name}' is not a source tpuctl can read."
    assert refused.value.hint.startswith("Give a folder that TFDS wrote, or a folder of save_to_disk ")
    assert refused.value.hint.endswith(", or a folder with one folder of images for each class.")


def test_a_kind_or_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with pytest.raises(UsageError) as refused:
        open_source(tmp_path / "rows.csv", "xyz", Options(), no_progress)
    assert refused.value.message == "There is no kind of source called 'xyz'."
    assert refused.value.hint == (
        "One of tfds, saved, webdataset, metadata, coco, masks, tfrecord, parquet, jsonl, csv, numpy, idx, "
        "text, audio, images."
    )
    with pytest.raises(UsageError, match=r"^There is no '.*rows\.tsv'\.$") as missing:
        open_source(tmp_path / "rows.tsv", None, Options(), no_progress)
    assert missing.value.hint == "Did you mean rows.csv?"
    with pytest.raises(UsageError) as missing:
        open_source(tmp_path / "none" / "at-all", None, Options(), no_progress)
    assert missing.value.hint == "Check the path."


def test_twenty_files_of_an_ending_show_a_folder(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.csv").touch()
    (tmp_path / "zz.jsonl").touch()
    chosen = kind_of(LocalTree(tmp_path))
    assert (chosen.kind, chosen.also) == ("jsonl", ("csv",))


MIB = 1 << 20


def footer(rows: int, size: int, *texts: int, path: str = "t", is_text: bool = True) -> Footer:
    """Return a footer of rows of so many bytes, and of a dictionary of texts in each group."""
    chunks = [Chunk(path, is_text, True, text, 0) for text in texts]
    plain = Chunk("n", False, False, size, 0)
    return Footer(rows, (Group(size, (plain,)), *(Group(0, (chunk,)) for chunk in chunks)))


def never(names: list[str]) -> Any:
    """Open no file."""
    raise AssertionError(names)


@pytest.mark.parametrize(
    ("rows", "size", "most"),
    [
        (1000, 1000 * 2048, 1024),
        (1000, 1000 * 256, 8192),
        (1000, 1000 * 255, 8192),
        (1000, 1000 * 257, 8160),
        (10, 10 * (MIB // 8), 16),
        (10, 10 * MIB, 16),
        (10, 10 * (MIB // 9), 18),
        (0, 0, 8192),
        (5, 4, 8192),
    ],
)
def test_rows_of_2_mib_are_held_but_16_at_least_and_8192_at_most(rows: int, size: int, most: int) -> None:
    assert cautious_rows(footer(rows, size)) == most
    assert batch_rows(footer(rows, size), never) == most


@pytest.mark.parametrize(
    ("longest", "rows"),
    [
        (1, 256),
        (64 * MIB // 256, 256),
        (64 * MIB // 255, 255),
        (MIB, 64),
        (4 * MIB, 16),
        (5 * MIB, 12),
        (64 * MIB, 1),
        (0, 8192),
    ],
)
def test_a_dictionary_may_hold_one_text_as_long_as_it_is(longest: int, rows: int) -> None:
    assert cautious_rows(footer(1000, 1000, longest)) == rows
    assert cautious_rows(footer(1000, 1000, longest, 0)) == rows, "the longest counts"
    assert cautious_rows(footer(1000, 1000, longest, is_text=False)) == 8192


def test_a_text_within_a_list_is_not_looked_for() -> None:
    assert batch_rows(footer(1000, 1000, MIB, path="t.list.item"), never) == 64


@pytest.mark.parametrize(
    ("groups", "rows"),
    [
        ([["a", "b"], ["c"]], 8192),
        ([["a", "b"], ["c" * 8192]], 8192),
        ([["a", "b"], ["c" * 8193]], 8191),
        ([["c" * 65_536, "b"], ["c"]], 1024),
        ([["a", "b" * 65_536], ["c"]], 1024),
        ([["c" * (5 * MIB)], ["a"]], 12),
    ],
)
def test_the_longest_text_of_each_dictionary_says_how_many_rows_fit(
    groups: list[list[str]], rows: int
) -> None:
    stream = io.BytesIO()
    with parquet.ParquetWriter(stream, pa.schema({"t": pa.string(), "n": pa.int64()})) as writer:
        for texts in groups:
            writer.write_table(pa.table({"t": texts, "n": list(range(len(texts)))}))
    opened: list[list[str]] = []

    @contextmanager
    def open_file(names: list[str]) -> Iterator[Any]:
        opened.append(names)
        yield parquet.ParquetFile(stream, read_dictionary=names)

    assert batch_rows(footer(1000, 1000, *[MIB] * (len(groups) - 1)), open_file) == rows
    assert opened == [["t"]]


def test_a_dictionary_that_is_read_as_something_else_is_taken_for_the_longest() -> None:
    class File:
        def iter_batches(self, size: int, **_: Any) -> Iterator[Any]:
            yield pa.record_batch({"t": [1, 2]})

    @contextmanager
    def open_file(names: list[str]) -> Iterator[Any]:
        yield File()

    assert batch_rows(footer(1000, 1000, MIB), partial(open_file)) == 1
