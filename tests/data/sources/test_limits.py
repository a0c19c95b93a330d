"""Files as an attacker would write them: a header, a nesting or a count fills the memory of its reader.

Sizes that the documentation names are those that hold.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import items, no_progress, only_bad, opened, png
from tests.data.sources.annotated.test_sounds import flac
from tests.data.test_memory import peak_of_its_own
from tests.data.tfrecord.test_framing import head
from tests.paths import ROOT
from tpuctl.data import tokens
from tpuctl.data.files import rows, temp_files
from tpuctl.data.images import header, survey
from tpuctl.data.options import Options
from tpuctl.data.source import Source
from tpuctl.data.sources import numpy_files, parquet_files, tfrecord_files
from tpuctl.data.sources.annotated import metadata
from tpuctl.data.sources.annotated import records as annotated_rows
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tables import columns, csv_cells
from tpuctl.data.tfrecord.example_encoding import encode, packed_ints
from tpuctl.data.tfrecord.framing import frame
from tpuctl.data.trees import objects
from tpuctl.errors import StateError, UsageError


def read(path: Path, kind: str | None = None) -> Source:
    return opened(open_source(path, kind, Options(), no_progress))


def npy(header: str, data: bytes = b"") -> bytes:
    encoded = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(encoded)) + encoded + data


def shaped(shape: str, descr: str = "<f4") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ("(" * 9000, b""),
        ("{'descr': " + "-" * 9000 + "1}", b""),
        (shaped("(-1, -1)"), bytes(4)),
        (shaped("(1000000000000, 0)"), b""),
        (shaped("(1000000000000,)", "<U0"), b""),
        (shaped("(1000000000000, 1000000000000)"), bytes(8)),
        (shaped("()"), bytes(4)),
        (shaped("(1,)", "|O"), b"\x80\x04."),
    ],
    ids=["parentheses", "signs", "negative", "empty rows", "empty texts", "huge", "no rows", "pickle"],
)
def test_an_array_with_a_wrong_header_is_named(tmp_path: Path, header: str, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(npy(header, data))
    with pytest.raises(UsageError, match=r"'x\.npy'"):
        read(tmp_path / "x.npy")
    np.savez(tmp_path / "y.npz", x=np.zeros(3))
    import zipfile

    with zipfile.ZipFile(tmp_path / "y.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(header, data))
    with pytest.raises(UsageError, match=r"'y\.npz: x'"):
        read(tmp_path / "y.npz")


def test_an_array_of_records_that_fill_the_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_files, "LONGEST", 4000)
    for size, is_read in ((1000, True), (1001, False)):
        np.savez_compressed(tmp_path / "x.npz", x=np.zeros((2, size), np.float32))
        if is_read:
            assert len(items(read(tmp_path / "x.npz"))) == 2
            continue
        with pytest.raises(UsageError, match=r"A record of 'x\.npz: x' has 4004 bytes, and at most 4000"):
            read(tmp_path / "x.npz")


def test_an_idx_file_of_empty_records_is_named(tmp_path: Path) -> None:
    (tmp_path / "a-idx2-ubyte").write_bytes(b"\0\0\x08\x02" + struct.pack(">II", 1 << 31, 0))
    with pytest.raises(UsageError, match="have no values"):
        read(tmp_path / "a-idx2-ubyte")


def test_json_that_is_nested_deeply_is_one_bad_record(tmp_path: Path) -> None:
    deep = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n' * 300 + deep + "\n")
    assert "nested too deeply" in only_bad(read(tmp_path / "rows.jsonl"))


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.tfrecord"])
def test_a_table_of_very_many_columns_is_refused(tmp_path: Path, name: str) -> None:
    names = [f"c{number}" for number in range(100_001)]
    writers = {
        "rows.csv": lambda: (",".join(names) + "\n").encode(),
        "rows.jsonl": lambda: json.dumps(dict.fromkeys(names, 0)).encode(),
        "rows.tfrecord": lambda: frame(encode(dict.fromkeys(names, 0))),
    }
    (tmp_path / name).write_bytes(writers[name]())
    with pytest.raises(UsageError, match="has 100001 columns, and at most 100000 can be read"):
        read(tmp_path / name)


@pytest.mark.parametrize("length", [1 << 31, 1 << 60, (1 << 64) - 1])
def test_a_record_of_any_length_is_damage(tmp_path: Path, length: int) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frame(encode({"x": 1})) + head(length) + bytes(99))
    (bad,) = read(tmp_path / "a.tfrecord").bad
    assert f"it would have {length} bytes, and at most" in str(bad)


class TestTfds:
    """A folder that says it was written by TFDS."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        shard = "a-train.tfrecord-00000-of-00001"
        (tmp_path / shard).write_bytes(frame(encode({"label": 0})))
        split = {"name": "train", "shardLengths": ["1"]}
        (tmp_path / "dataset_info.json").write_text(json.dumps({"name": "a", "splits": [split]}))
        self.write_classes(tmp_path, 1)
        return tmp_path

    def write_classes(self, folder: Path, count: int) -> None:
        label = {"pythonClassName": "x.ClassLabel", "classLabel": {"numClasses": str(count)}}
        features = {"featuresDict": {"features": {"label": label}}}
        (folder / "features.json").write_text(json.dumps(features))

    @pytest.mark.parametrize("count", [0, 1, 1_000_000])
    def test_any_number_of_classes_is_read(self, folder: Path, count: int) -> None:
        self.write_classes(folder, count)
        assert len(read(folder, "tfds").features["label"].classes) == count  # type: ignore[union-attr]

    @pytest.mark.parametrize("count", [-1, 1_000_001, 10**15])
    def test_a_number_of_classes_that_fills_the_memory_is_refused(self, folder: Path, count: int) -> None:
        self.write_classes(folder, count)
        with pytest.raises(UsageError, match=rf"has {count} classes, and at most 1000000 can be used"):
            read(folder, "tfds")

    def test_more_shards_than_a_manifest_may_have_are_refused_before_they_are_looked_for(
        self, folder: Path
    ) -> None:
        """A file of 12 MB named three million: 0.9 GB."""
        splits = [{"name": f"s{number}", "shardLengths": ["1"] * 30_000} for number in range(4)]
        (folder / "dataset_info.json").write_text(json.dumps({"name": "a", "splits": splits}))
        with pytest.raises(UsageError, match=r"dataset_info\.json names more than 100000 shards"):
            read(folder, "tfds")

    def test_a_version_is_found_in_any_number_of_folders(self, folder: Path) -> None:
        inner = top = folder.with_name("top")
        for _ in range(1200):
            inner.mkdir()
            inner /= "a"
        folder.rename(inner)
        try:
            assert len(read(top, "tfds").features) == 1
        finally:  # shutil removes folders by recursion
            inner.rename(folder)
            for parent in [*inner.parents][:1200]:
                parent.rmdir()

    def test_labels_whose_classes_fill_the_memory_together_are_refused(self, folder: Path) -> None:
        label = {"pythonClassName": "x.ClassLabel", "classLabel": {"numClasses": "400000"}}
        for count, is_read in ((2, True), (3, False)):
            features = {"featuresDict": {"features": {f"label{number}": label for number in range(count)}}}
            (folder / "features.json").write_text(json.dumps(features))
            if is_read:
                assert len(read(folder, "tfds").features) == count
                continue
            with pytest.raises(UsageError, match="all labels have more than 1000000 classes together"):
                read(folder, "tfds")

    @pytest.mark.parametrize(
        "content",
        ["[" * 100_000, "1" * 5_000, '{"splits": 1}', '{"splits": [1]}', "\xff", "null",
         '{"splits": [{"name": "a", "shardLengths": [[]]}]}', '{"splits": [{"name": 1}]}',
         '{"splits": [{"name": "../x", "shardLengths": ["1"]}]}'],
        ids=["deep", "long", "number", "numbers", "latin", "null", "lists", "split", "traversal"],
    )  # fmt: skip
    @pytest.mark.parametrize("file", ["dataset_info.json", "features.json"])
    def test_damaged_metadata_is_named(self, folder: Path, file: str, content: str) -> None:
        (folder / file).write_bytes(content.encode("latin-1"))
        with pytest.raises(UsageError):
            read(folder, "tfds")


def test_metadata_that_fills_the_memory_is_not_read(tmp_path: Path) -> None:
    for name in ("dataset_info.json", "features.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"is larger than 67\.1 MB"):
        read(tmp_path, "tfds")


def test_a_bomb_leaves_space_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reserve is set to more than any disk has: to fill the disk of the machine is no test."""
    monkeypatch.setattr(temp_files, "_CHECKED", 1 << 20)
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        file.write(b"x\n" + bytes(8 << 20))
    free = 1 << 60
    monkeypatch.setattr(temp_files, "RESERVE", free)
    monkeypatch.setattr(temp_files.TempFile, "_free", falling([free, free // 4, free // 8]))
    with pytest.raises(StateError, match="what is unpacked would leave less than"):
        read(tmp_path / "rows.csv.gz")


def test_a_text_for_all_rows_of_a_parquet_file_is_not_held_as_often(tmp_path: Path) -> None:
    rows, size = 600, 1 << 20
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    pq.write_table(
        pa.table({"text": texts}), tmp_path / "rows.parquet", store_schema=False, compression="zstd"
    )
    assert (tmp_path / "rows.parquet").stat().st_size < 1000
    assert peak_of_its_own(tmp_path / "rows.parquet") < rows * size


@pytest.mark.parametrize("name", ["a/0.png", "a/0.txt"])
def test_a_file_that_fills_the_memory_is_one_bad_record(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / name, tmp_path / name.replace("0", "1")):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(200) if path.suffix == ".png" else b"text")
    with (tmp_path / name).open("r+b") as file:
        file.truncate(1 << 40)
    assert "cannot be read: it has 1099511627776 bytes, and at most 1073741824 are read" in only_bad(
        read(tmp_path)
    )


def test_integers_are_packed_in_little_more_memory_than_their_bytes() -> None:
    numbers = np.full(1 << 20, -1)
    tracemalloc.start()
    packed = packed_ints(numbers)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert packed == packed_ints(numbers[:1]) * len(numbers)
    assert peak < 4 * len(packed)


def test_sounds_of_a_few_bytes_that_become_many_are_not_held_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = flac(np.full(1 << 18, -1, np.int64))
    assert len(sound) < 5000
    monkeypatch.setattr(columns, "_MOST_CONVERTED", 4 << 20)
    pq.write_table(pa.table({"sound": pa.array([sound] * 20, pa.binary())}), tmp_path / "rows.parquet")
    source = read(tmp_path / "rows.parquet")
    tracemalloc.start()
    sizes = source.sizes(np.arange(20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(sizes) == 20
    assert peak < sum(sizes) // 2


def falling(sizes: list[int]):
    """A disk that others fill at the same time."""
    remaining = list(sizes)
    return lambda _file: remaining.pop(0) if len(remaining) > 1 else remaining[0]


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
