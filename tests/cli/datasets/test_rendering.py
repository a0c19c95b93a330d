"""What the data commands print of a dataset, number by number, and how `data head` shows a field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.images.bombs import blank_png
from tests.data.source_trees import write_image
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.output import format_bytes
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import (
    FILE,
    SCHEMA,
    Manifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    encode_manifest,
)
from tpuctl.data.schema.features import Audio, Box, Feature, Image, Label, Objects, Several, Tensor, Text
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import OVERHEAD, frame

Tpuctl = Callable[..., CommandResult]


def table_cells(text: str) -> list[list[str]]:
    """Return the columns of each line."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_every_number_is_that_of_the_dataset(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    """No two are the same."""
    for index in range(9):
        write_image(Path("pictures/cat") / f"{index}.png", shade=index)
        write_image(Path("pictures/dog") / f"{index}.png", shade=10 + index)
    Path("pictures/dog/8.png").write_bytes(b"")
    options = ("--split", "train=13/17,test=4/17", "--shards", "3", "--skip-bad", "--seed", "6")
    uploaded = tpuctl("data", "upload", "pets", "pictures", *options)
    assert uploaded.code == 0, uploaded.err
    described = tpuctl("data", "describe", "pets", "--json").json
    train, test = (described["manifest"]["splits"][name] for name in ("train", "test"))
    size = format_bytes(train["bytes"] + test["bytes"])
    where = "gs://sim-project-tpuctl/datasets/pets/1.0.0/"
    assert table_cells(uploaded.out)[:6] == [
        ["dataset", "pets/1.0.0"],
        ["records", "17"],
        ["classes", "2"],
        ["shards", f"6 ({size})"],
        ["skipped", "1"],
        ["where", where],
    ]
    assert table_cells(tpuctl("data", "describe", "pets").out) == [
        ["dataset", "pets/1.0.0"],
        ["records", "17"],
        ["size", size],
        ["made from", "images, seed 6"],
        ["skipped", "1"],
        ["digest", described["digest"][:12]],
        ["where", where],
        [""],
        ["FIELD", "TYPE"],
        ["image", "png image, 6 × 8 × 3, uint8"],
        ["label", "label, 2 classes: cat, dog"],
        [""],
        ["SPLIT", "RECORDS", "SHARDS", "SIZE"],
        ["train", "13", "3", format_bytes(train["bytes"])],
        ["test", "4", "3", format_bytes(test["bytes"])],
    ]
    assert table_cells(tpuctl("data", "ls").out) == [
        ["NAME", "VERSION", "SPLITS", "RECORDS", "SHARDS", "SIZE"],
        ["pets", "1.0.0", "train, test", "17", "6", size],
    ]
    (listed,) = tpuctl("data", "ls", "--json").json["datasets"]
    assert listed == {
        "name": "pets", "version": "1.0.0", "uri": where, "records": 17,
        "bytes": train["bytes"] + test["bytes"], "shards": 6, "file_format": "tfrecord",
        "splits": {"train": 13, "test": 4},
        "classes": ["cat", "dog"], "skipped": 1, "digest": described["digest"],
    }  # fmt: skip


@pytest.mark.daily
def test_one_record_is_not_several(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    Path("a.csv").write_text("size,label\n1,x\n")
    Path("b.csv").write_text("size,label\n1,x\n2,x\n")
    for name in ("a", "b"):
        assert tpuctl("data", "upload", name, f"{name}.csv").code == 0
    assert tpuctl("data", "verify", "a").out.startswith("a/1.0.0 is complete: 1 record in 1 shard (")
    assert ["holds", "1 record"] in table_cells(tpuctl("data", "rm", "a").err)
    assert tpuctl("data", "diff", "a", "a").out.endswith(": 1 record is the same.\n")
    assert ["split train", "1 record", "2 records"] in table_cells(tpuctl("data", "diff", "a", "b").out)


def cells(tpuctl: Tpuctl, record: dict[str, object]) -> dict[str, str]:
    """Upload a dataset of one record and return its cells by their columns."""
    Path("one.jsonl").write_text(json.dumps(record) + "\n")
    assert tpuctl("data", "upload", "one", "one.jsonl").code == 0
    header, row = tpuctl("data", "head", "one").out.splitlines()
    starts = [header.index(column) for column in header.split()]
    parts = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(header.split(), parts, strict=True))


@pytest.mark.usefixtures("simulator")
class TestCell:
    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (1, "1"),
            (8, "1 2 3 4 5 6 7 8"),
            (9, "1 2 3 4 5 6 7 8 ... (9 values)"),
            (20, "1 2 3 4 5 6 7 8 ... (20 values)"),
        ],
    )
    def test_eight_values_are_shown_and_more_are_counted(self, tpuctl: Tpuctl, count: int, text: str) -> None:
        assert cells(tpuctl, {"x": list(range(1, count + 1)), "y": 0})["X"] == text

    @pytest.mark.parametrize(("length", "ending"), [(60, "x"), (61, "...")])
    def test_a_text_is_cut_at_sixty_characters(self, tpuctl: Tpuctl, length: int, ending: str) -> None:
        text = cells(tpuctl, {"text": "x" * length, "y": 0})["TEXT"]
        assert (len(text), text.endswith(ending)) == (60, True)

    def test_line_ends_are_spaces_and_floats_have_six_digits(self, tpuctl: Tpuctl) -> None:
        shown = cells(tpuctl, {"text": "a\n\tb", "rate": 0.123456789, "count": 1234567})
        assert (shown["TEXT"], shown["RATE"], shown["COUNT"]) == ("a b", "0.123457", "1234567")


PETS = Label(("cat", "dog"))
FEATURES: dict[str, Feature] = {
    "image": Image((None, None, 3)),
    "label": PETS,
    "digit": Label(("0", "1")),
    "objects": Objects({"bbox": Box(), "label": PETS}),
    "boxes": Objects({"bbox": Box()}),
    "sound": Audio(8000, 2),
    "tags": Several(PETS),
    "data": Tensor("string"),
    "rates": Tensor("float32", (2,)),
    "text": Text(),
    "none": Tensor("int64", (None,)),
}
CELLS = {
    "image": "1.2 kB", "label": "1 (dog)", "digit": "1", "objects": "2: 0 (cat) 1 (dog)", "boxes": "3",
    "sound": "1.5 s", "tags": "1 (dog) 0 (cat)", "data": "10 B of binary data", "rates": "0.5 1.23457e+08",
    "text": "größe", "none": "",
}  # fmt: skip


def test_every_kind_of_feature_is_shown_in_a_cell_and_in_json(tpuctl: Tpuctl, bucket: Bucket) -> None:
    record = {
        "image": b"\xff" * 1_200, "label": 1, "digit": 1, "objects/bbox": [0.5] * 8, "objects/label": [0, 1],
        "boxes/bbox": [0.25] * 12, "sound": [1] * 24_000, "tags": [1, 0], "data": b"\xff" * 10,
        "rates": [0.5, 123456789.0], "text": "größe",
    }  # fmt: skip
    forge(bucket, encode(record), features=FEATURES)
    header, row = tpuctl("data", "head", "forged").out.splitlines()
    names = [name.lower() for name in header.split()]
    assert names == list(FEATURES)
    starts = [header.index(name) for name in header.split()]
    parts = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    assert dict(zip(names, parts, strict=True)) == CELLS
    (shown,) = tpuctl("data", "head", "forged", "--json").json["examples"]
    assert shown == {
        **record,
        "image": {"bytes": 1_200},
        "data": {"bytes": 10},
        "rates": [0.5, 123456792.0],
    }


@pytest.mark.usefixtures("simulator")
class TestSheet:
    def test_characters_that_its_captions_lack_are_named(self, tpuctl: Tpuctl, home: Path) -> None:
        for name in ("кот \U00010600", "dog"):
            write_image(Path("pictures") / name / "0.png")
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        result = tpuctl("data", "head", "pets", "--image", "sheet.png")
        assert result.err.splitlines()[-2:] == [
            "2 images in sheet.png",
            "Its captions show ? for letters that are not of English: кот\U00010600",
        ]
        assert "(кот \U00010600)" in result.out

    def test_captions_that_can_be_drawn_need_no_word(self, tpuctl: Tpuctl, home: Path) -> None:
        write_image(Path("pictures/chat é/0.png"))
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        result = tpuctl("data", "head", "pets", "--image", "sheet.png")
        assert result.err.splitlines()[-1] == "1 image in sheet.png"

    def test_what_was_converted_is_counted(self, tpuctl: Tpuctl, home: Path) -> None:
        for number in range(3):
            write_image(Path(f"pictures/cat/{number}.png"), mode="RGB" if number else "L")
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        result = tpuctl("data", "head", "pets", "--image", "sheet.png")
        assert result.err.splitlines()[-1] == (
            "1 of them was converted for the dataset: in a frame, with the reason."
        )


@pytest.mark.usefixtures("simulator")
class TestHostile:
    """A dataset that another program wrote: its manifest is right, its records are not."""

    def test_an_image_that_cannot_be_drawn_is_a_warning(self, tpuctl: Tpuctl, home: Path) -> None:
        write_image(Path("pictures/cat/0.png"))
        Path("pictures/cat/bomb.png").write_bytes(blank_png(13_377, 13_377, depth=1))
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        result = tpuctl("data", "head", "pets", "--image", "sheet.png")
        assert result.code == 0
        assert (
            "Warning: an image is not drawn: it has 13377 × 13377 pixels, and at most 134 megapixels are "
            "decoded." in result.err
        )

    @pytest.mark.parametrize("label", [7, -1, 1 << 62, b"cat", 0.5])
    def test_a_label_without_a_class_is_shown_as_it_is(
        self, tpuctl: Tpuctl, bucket: Bucket, label: int | bytes | float
    ) -> None:
        forge(bucket, encode({"image": blank_png(4, 4), "label": label}), classes=("cat",))
        result = tpuctl("data", "head", "forged")
        assert result.code == 0
        assert result.out.splitlines()[1].split()[-1] == (
            label.decode() if isinstance(label, bytes) else f"{label:g}" if label == 0.5 else str(label)
        )

    def test_a_dataset_whose_label_has_no_classes(self, tpuctl: Tpuctl, bucket: Bucket) -> None:
        forge(bucket, encode({"image": blank_png(4, 4), "label": 0}), classes=())
        assert tpuctl("data", "head", "forged").out.splitlines()[1].split()[-1] == "0"
        assert tpuctl("data", "describe", "forged").code == 0

    @pytest.mark.parametrize("image", [1 << 40, 0.5])
    def test_a_number_is_no_size_of_an_image(
        self, tpuctl: Tpuctl, bucket: Bucket, image: int | float
    ) -> None:
        forge(bucket, encode({"image": image, "label": 0}), classes=("cat",))
        result = tpuctl("data", "head", "forged", "--image", "sheet.png")
        assert (result.code, "Warning: an image is not drawn: it is empty." in result.err) == (0, True)

    def test_a_record_without_fields(self, tpuctl: Tpuctl, bucket: Bucket) -> None:
        forge(bucket, encode({}), classes=("cat",))
        assert tpuctl("data", "head", "forged", "--image", "sheet.png").code == 0


def forge(
    bucket: Bucket,
    record: bytes,
    *,
    classes: tuple[str, ...] = (),
    features: dict[str, Feature] | None = None,
) -> None:
    """Write a dataset of one record, as a program of another would."""
    shard = ShardEntry("forged.tfrecord", 1, len(record) + OVERHEAD, "AAAAAA==")
    manifest = Manifest(
        schema=SCHEMA,
        name="forged",
        version="1.0.0",
        features=features or {"image": Image((None, None, 3)), "label": Label(classes)},
        classes=classes,
        splits={"train": SplitEntry(1, len(record) + OVERHEAD, (shard,))},
        source=SourceEntry("images", "", 0),
        files={},
        tpuctl="0",
    )
    bucket.create(manifest.ref.folder + shard.file, frame(record))
    bucket.create(manifest.ref.folder + FILE, encode_manifest(manifest))
