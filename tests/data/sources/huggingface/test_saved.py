"""Datasets that `datasets` and `webdataset` saved, also the files in tests/golden, as sources."""

from __future__ import annotations

import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.source_trees import examples, items, no_progress, only_bad, opened
from tests.data.sources.annotated.test_sounds import WAVE, flac, wav
from tests.data.test_memory import peak_of_its_own
from tests.paths import ROOT
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Audio, Label, Several, Tensor, Text
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import TpuctlError, UsageError


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "saved", tmp_path / "saved"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("dataset_dict.json", "{", "'dataset_dict.json' is not JSON"),
        ("dataset_dict.json", '{"splits": 3}', "'dataset_dict.json' is not in the form"),
        ("dataset_dict.json", '{"splits": ["../x"]}', "'dataset_dict.json' is not in the form"),
        ("dataset_dict.json", '{"splits": ["valid"]}', "Cannot read 'valid/state.json'"),
        ("train/state.json", '{"_data_files": [{"filename": "../../x.arrow"}]}', "state.json' is not in"),
        ("train/state.json", '{"_data_files": [{"filename": "x.arrow"}]}', "Cannot read 'x.arrow'"),
        ("train/state.json", '{"_indices_data_files": [1]}', "has indices of rows"),
        ("train/data-00000-of-00001.arrow", "nothing", "00001.arrow' is not an Arrow file"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_datasets_writes_it_is_named(
    saved: Path, file: str, content: str, message: str
) -> None:
    (saved / file).write_text(content)
    with pytest.raises(UsageError, match=message):
        read(saved)


def test_random_damage_of_an_arrow_file_ends_in_words(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalTree, "settle", lambda tree, newest: None)  # nothing is written later
    file = saved / "train" / "data-00000-of-00001.arrow"
    whole, generator = file.read_bytes(), random.Random(9)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        file.write_bytes(data[: generator.choice((len(data), generator.randrange(len(data))))])
        try:
            source = open_source(saved, None, Options(), no_progress)
            try:
                items(source)
            finally:
                source.close()
        except TpuctlError:
            continue


def declared(tmp_path: Path, feature: Any, values: Any) -> Path:
    """Write a column under a feature that its schema declares."""
    content = json.dumps({"info": {"features": {"x": feature}}})
    table = pa.table({"x": values, "n": ["a"] * len(values)}).replace_schema_metadata(
        {"huggingface": content}
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.mark.parametrize("value", [-1, 2, None])
def test_a_number_that_is_no_class_is_a_bad_record(tmp_path: Path, value: int | None) -> None:
    path = declared(
        tmp_path, {"_type": "ClassLabel", "names": ["a", "b"]}, pa.array([0, value, 1], pa.int64())
    )
    source = read(path)
    assert source.features["x"] == Label(("a", "b"))
    assert "row 2 of 'rows.parquet' has " in only_bad(source)
    chosen = opened(open_source(path, None, Options(label="x"), no_progress))
    assert chosen.labels is not None
    assert chosen.labels.tolist() == [0, -1, 1]
    assert chosen.features["x"] == Label(("a", "b"))
    assert [record["x"] for record in examples(chosen)] == [[0], [1]]


@pytest.mark.parametrize(
    "feature",
    [
        {"_type": "ClassLabel", "names": 3},
        {"_type": "Value", "dtype": "string"},
        {"_type": "Array2D", "shape": [0, "x"], "dtype": "int64"},
        "ClassLabel",
        None,
    ],
)
def test_what_is_declared_in_another_form_is_passed_over(tmp_path: Path, feature: Any) -> None:
    assert read(declared(tmp_path, feature, ["a", "b"])).features["x"] == Text()


def test_classes_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="some have the same name"):
        read(declared(tmp_path, {"_type": "ClassLabel", "names": ["a", "a "]}, [0, 1]))


def test_each_of_two_columns_of_classes_has_its_own(tmp_path: Path) -> None:
    features = {
        "label": {"_type": "ClassLabel", "names": ["a", "b", "c"]},
        "coarse": {"_type": "ClassLabel", "names": ["x", "y"]},
    }
    columns = {"label": pa.array([0, 1, 2] * 10), "coarse": pa.array([1, 0, 1] * 10)}
    content = json.dumps({"info": {"features": features}})
    table = pa.table(columns).replace_schema_metadata({"huggingface": content})
    pq.write_table(table, tmp_path / "a.parquet")
    records = examples(read(tmp_path / "a.parquet"))
    assert records == [{"label": [n % 3], "coarse": [(1, 0, 1)[n % 3]]} for n in range(30)]


def sounds(tmp_path: Path, *contents: bytes | None, declared: bool = True) -> Path:
    """Write a column of sounds as `datasets` embeds them."""
    cells = [{"bytes": content, "path": f"{number}.wav"} for number, content in enumerate(contents)]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"audio": pa.array(cells, kind), "text": ["a"] * len(cells)})
    features = {"audio": {"sampling_rate": 8000, "_type": "Audio"}} if declared else {}
    content = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": content}), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.mark.parametrize("declared", [True, False])
def test_a_column_of_sounds_is_audio_as_tfds_has_it(tmp_path: Path, declared: bool) -> None:
    path = sounds(tmp_path, wav(), flac(-WAVE), declared=declared)
    source = read(path)
    assert source.features == {"audio": Audio(8000, 1, None), "text": Text()}
    assert [record["audio"] for record in examples(source)] == [WAVE.tolist(), (-WAVE).tolist()]
    table = pq.read_table(path)
    saved = tmp_path / "saved"
    saved.mkdir()
    with pa.OSFile(str(saved / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    assert examples(read(saved)) == examples(source)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (wav(rate=16000), "has 16000 samples a second in 1 channel, and 2 of 3 have 8000 samples a second"),
        (b"ID3 nothing", "is not a WAV or FLAC file"),
        (wav()[:-4], "has 12 bytes of samples, and its header says 16"),
        (None, "is empty"),
    ],
)
def test_a_sound_of_a_column_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    said = only_bad(read(sounds(tmp_path, wav(), content, wav())))
    assert said.startswith(f"row 2 of 'rows.parquet' has a sound in the column 'audio' which {why}")


def test_a_column_of_sounds_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(sounds(tmp_path, b"ID3 nothing", b"ID3 nothing"))
    assert (
        caught.value.message
        == "The column 'audio' has sounds that are not WAV or FLAC, or are not in the file."
    )
    assert caught.value.hint == "Embed them as WAV, or give the type text: --type audio=text."
    with pytest.raises(UsageError) as caught:
        read(sounds(tmp_path, b"ID3 nothing", declared=False))
    assert caught.value.hint.startswith(
        "Its bytes are no pictures, and no sounds in WAV or FLAC: convert them."
    )


def saved_batch(tmp_path: Path, batch: pa.RecordBatch, **how: Any) -> Path:
    """Write a folder as `save_to_disk` does, with one batch."""
    options = pa.ipc.IpcWriteOptions(allow_64bit=True, **how)
    with (
        pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file,
        pa.ipc.new_stream(file, batch.schema, options=options) as writer,
    ):
        writer.write_batch(batch)
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "x.arrow"}]}')
    (tmp_path / "dataset_info.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_batches_that_unpack_to_any_size_are_refused(tmp_path: Path, codec: str, kind: pa.DataType) -> None:
    batch = pa.record_batch({"text": pa.array(["x" * 100_000, "y"]).cast(kind)})
    assert len(items(opened(read(saved_batch(tmp_path, batch))))) == 2
    with pytest.raises(
        UsageError, match=r"'x\.arrow' is not an Arrow file, or a damaged one: it is compressed"
    ):
        read(saved_batch(tmp_path, batch, compression=codec))


@pytest.mark.parametrize("kind", [pa.null(), pa.binary(0)])
def test_rows_without_bytes_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    buffers = [None] if pa.types.is_null(kind) else [None, pa.py_buffer(b"")]
    batch = pa.record_batch({"label": pa.Array.from_buffers(kind, 1 << 40, buffers)})
    with pytest.raises(UsageError, match=r"'x\.arrow' .* a batch has 1099511627776 rows in 0 bytes"):
        read(saved_batch(tmp_path, batch))


def test_a_text_for_all_rows_is_not_held_as_often(tmp_path: Path) -> None:
    rows, size = 300, 4 << 20
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    assert peak_of_its_own(saved_batch(tmp_path, pa.record_batch({"text": texts}))) < rows * size


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
