"""One rule for images in columns of Parquet and in features of TFRecords, as for files in folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.images.zoo.files import ZOO
from tests.data.source_trees import examples, items, no_progress, opened
from tpuctl.data.images.header import inspect_image
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.schema.features import Tensor
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
from tpuctl.errors import UsageError

MIXED = ["grey.jpg", "photograph.jpg", "drawing.png", "clear.webp", "photograph.jpg", "truncated.jpg"]
SUMMARY = (
    "6 pictures: 3 RGB, 1 RGBA, 1 grey; 2 will be converted: 2 to 3 channels, 1 from WebP; "
    "1 cannot be used: 1 cannot be decoded (it ends before its last marker)"
)


def in_parquet(root: Path, names: list[str]) -> Path:
    cells = [{"bytes": ZOO[name].make(), "path": name} for name in names]
    pq.write_table(pa.table({"image": cells, "n": list(range(len(names)))}), root / "pictures.parquet")
    return root / "pictures.parquet"


def in_records(root: Path, names: list[str]) -> Path:
    records = [encode({"image": ZOO[name].make(), "n": number}) for number, name in enumerate(names)]
    (root / "pictures.tfrecord").write_bytes(b"".join(map(frame, records)))
    return root / "pictures.tfrecord"


Writer = Callable[[Path, list[str]], Path]
WRITERS = pytest.mark.parametrize("write", [in_parquet, in_records])


def read_fields(path: Path, options: Options = Options()) -> Source:  # noqa: B008  frozen
    return opened(open_source(path, None, options, no_progress))


def images(source: Source) -> list[bytes]:
    return [value for example in examples(source) for value in example["image"] if isinstance(value, bytes)]


@WRITERS
def test_images_get_the_channels_of_most_and_the_first_does_not_decide(tmp_path: Path, write: Writer) -> None:
    source = read_fields(write(tmp_path, MIXED))
    assert source.features["image"] == ImageFeature((None, None, 3))
    assert source.images is not None
    assert source.images.summary == SUMMARY
    read_images = images(source)
    assert [inspect_image(image).channels for image in read_images] == [3] * 5
    assert [image == ZOO[name].make() for image, name in zip(read_images, MIXED, strict=False)] == [
        False, True, True, False, True,
    ]  # fmt: skip
    (bad,) = (record for record in items(source) if isinstance(record, BadRecord))
    assert "ends before its last marker" in str(bad)


@WRITERS
def test_a_user_chooses_the_channels_and_the_size(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path, MIXED[:-1])
    keep = images(read_fields(path, Options(channels="keep")))
    assert [inspect_image(image).channels for image in keep] == [1, 3, 3, 4, 3]
    resized = images(read_fields(path, Options(channels=1, resize=(8, 9))))
    assert {inspect_image(image)[:3] for image in resized} == {(8, 9, 1)}


@WRITERS
def test_half_of_the_values_as_images_make_images(tmp_path: Path, write: Writer) -> None:
    assert isinstance(
        read_fields(write(tmp_path, ["drawing.png", "notes.jpg"])).features["image"], ImageFeature
    )


def test_fewer_images_than_half_are_bytes(tmp_path: Path) -> None:
    source = read_fields(in_records(tmp_path, ["drawing.png", "notes.jpg", "noise.jpg"]))
    assert (source.features["image"], source.images) == (Tensor("string"), None)
    with pytest.raises(UsageError, match="which no record can"):
        read_fields(in_parquet(tmp_path, ["drawing.png", "notes.jpg", "noise.jpg"]))


@pytest.mark.parametrize("options", [Options(channels=3), Options(resize=(8, 8))], ids=["channels", "resize"])
def test_options_for_images_are_refused_without_any(tmp_path: Path, options: Options) -> None:
    (tmp_path / "rows.csv").write_text("n,label\n1,a\n2,b\n")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.tfrecord").write_bytes(frame(encode({"n": 1})))
    (tmp_path / "pos").mkdir()
    (tmp_path / "pos" / "1.txt").write_text("good")
    for name, kind in (("rows.csv", None), ("rows.parquet", None), ("rows.tfrecord", None), (".", "text")):
        with pytest.raises(UsageError, match=r"no images|and no others"):
            open_source(tmp_path / name, kind, options, no_progress)
