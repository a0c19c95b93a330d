"""What the real TensorFlow makes of our bytes, and we of its; one process imports it, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.data.source_trees import bytes_of, write_image
from tests.forks.tensorflow_python import report_of
from tests.paths import ROOT
from tpuctl.data.images.header import inspect_image
from tpuctl.data.plan import plan
from tpuctl.data.tfrecord.framing import frame, read_records

MODES = {
    "1": "png",
    "L": "png",
    "LA": "png",
    "P": "png",
    "RGB": "png",
    "RGBA": "png",
    "I;16": "png",
    "CMYK": "jpg",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tensorflow")
    for index in range(5):
        write_image(folder / "in" / ("cat", "dog")[index % 2] / f"{index}.png", shade=index)
    write_image(folder / "in" / "emu" / "wide.jpg", size=(11, 6))
    for shard in plan(folder / "in", name="pets", shards=2).shards():
        (folder / shard.file).write_bytes(bytes_of(shard)[0])
    modes = folder / "modes"
    modes.mkdir()
    for mode, suffix in MODES.items():
        Image.new(mode, (5, 4)).save(modes / f"{mode.replace(';', '_')}.{suffix}")
    clear = Image.new("P", (5, 4))
    clear.putpalette([1, 2, 3] * 256)
    clear.save(modes / "P_transparent.png", transparency=0)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    program = "tests.data.tfrecord.read_with_tensorflow"
    return dict(report_of("-m", program, folder, variables={"PYTHONPATH": str(ROOT)}))


def test_tensorflow_reads_our_shards_and_parses_our_examples(report: dict[str, Any]) -> None:
    narrow = [6, 8, 3]
    assert report["records"] == [[0, narrow]] * 3 + [[1, narrow]] * 2 + [[2, [6, 11, 3]]]


def test_our_examples_are_tensorflows_byte_for_byte_in_one_process(report: dict[str, Any]) -> None:
    assert report["same_bytes"]
    assert report["fields"] == ["a", "b", "f", "i", "s"]


def test_the_shape_we_record_is_the_one_tensorflow_decodes(report: dict[str, Any], folder: Path) -> None:
    ours = {file.name: inspect_image(file.read_bytes()) for file in sorted((folder / "modes").iterdir())}
    assert len(ours) == len(MODES) + 1
    assert report["modes"] == {
        name: [image.height, image.width, image.channels, image.dtype] for name, image in ours.items()
    }


def test_we_read_and_write_tensorflows_framing(report: dict[str, Any], folder: Path) -> None:
    with (folder / "theirs").open("rb") as stream:
        records = list(read_records(stream))
    assert records[:2] == [b"", b"tpu"]
    assert b"".join(map(frame, records)) == (folder / "theirs").read_bytes()
