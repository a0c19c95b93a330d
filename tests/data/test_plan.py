from __future__ import annotations

import base64
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import PIL
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import Tree, bytes_of, opened, produce, write_image
from tpuctl.data.options import BadRecordsError, Options, TokenOptions
from tpuctl.data.output.manifest import ShardEntry, decode_manifest
from tpuctl.data.output.shards import ShardResult
from tpuctl.data.plan import plan
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.framing import read_records
from tpuctl.errors import UsageError


def labels(shards: Iterable[bytes], tmp_path: Path) -> list[int]:
    file = tmp_path / "shards"
    file.write_bytes(b"".join(shards))
    with file.open("rb") as stream:
        return [int(decode(record)["label"][0]) for record in read_records(stream)]


def test_a_plan_says_what_will_be_made_and_makes_that(tree: Tree, tmp_path: Path) -> None:
    planned = plan(tree({"cat": 15, "dog": 5}), name="pets", splits="train=0.8,test=0.2", hosts=2)
    assert (planned.records, planned.classes) == (20, ("cat", "dog"))
    assert {split.name: (split.records, split.sharding.count) for split in planned.splits} == {
        "train": (16, 2),
        "test": (4, 2),
    }
    objects = produce(planned)
    assert tuple(objects) == planned.files
    assert list(objects)[-1] == "manifest.json"
    shards = [data for file, data in objects.items() if ".tfrecord-" in file]
    assert sum(map(len, shards)) == planned.bytes == sum(split.bytes for split in planned.splits)
    assert sorted(labels(shards, tmp_path)) == [0] * 15 + [1] * 5
    assert sorted(labels(shards[2:], tmp_path)) == [0, 0, 0, 1]


@pytest.mark.parametrize("hosts", [0, -1])
def test_a_dataset_is_read_by_one_host_at_least(tree: Tree, hosts: int) -> None:
    folder = tree({"cat": 3})
    with pytest.raises(UsageError, match=f"^{hosts} hosts cannot read a dataset"):
        plan(folder, name="pets", hosts=hosts)
    plan(folder, name="pets", hosts=1).source.close()


def test_the_manifest_describes_every_object(tree: Tree) -> None:
    objects = produce(plan(tree({"train/cat": 3, "test/cat": 1}), name="pets", version="2.0.1", shards=1))
    manifest = decode_manifest(objects.pop("manifest.json"))
    assert (manifest.name, manifest.version, manifest.classes) == ("pets", "2.0.1", ("cat",))
    assert (manifest.records, {name: split.records for name, split in manifest.splits.items()}) == (
        4,
        {"train": 3, "test": 1},
    )
    described = {entry.file: (entry.bytes, entry.crc32c) for entry in manifest.shards}
    described |= {file: (entry.bytes, entry.crc32c) for file, entry in manifest.files.items()}
    assert described == {
        file: (len(data), base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode())
        for file, data in objects.items()
    }


def test_the_same_input_gives_the_same_bytes_wherever_it_lies(tree: Tree, tmp_path: Path) -> None:
    root = tree({"dog": 9, "cat": 12})
    options: dict[str, Any] = {"name": "pets", "splits": "train=2/3,test=1/3", "shards": 3, "seed": 7}
    first = produce(plan(root, **options))
    copy = tmp_path / "copy"
    for file in sorted(root.rglob("*.png"), reverse=True):
        target = copy / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    assert produce(plan(copy, **options)) == first
    other = produce(plan(root, **{**options, "seed": 8}))
    assert decode_manifest(other["manifest.json"]).digest != decode_manifest(first["manifest.json"]).digest


def test_classes_are_mixed_in_every_shard(tree: Tree, tmp_path: Path) -> None:
    objects = produce(plan(tree({"cat": 20, "dog": 20}), name="pets", shards=4))
    shards = [data for file, data in objects.items() if ".tfrecord-" in file]
    assert all(set(labels([shard], tmp_path)) == {0, 1} for shard in shards)


def test_tfds_metadata_is_in_its_own_format(tree: Tree) -> None:
    objects = produce(plan(tree({"train/cat": 3, "train/dog": 2, "test/cat": 1}), name="pets"))
    assert objects["label.labels.txt"] == b"cat\ndog\n"
    assert json.loads(objects["features.json"]) == {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                "image": {
                    "pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
                    "image": {
                        "shape": {"dimensions": ["6", "8", "3"]},
                        "dtype": "uint8",
                        "encodingFormat": "png",
                    },
                },
                "label": {
                    "pythonClassName": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
                    "classLabel": {"numClasses": "2"},
                },
            }
        },
    }
    info = json.loads(objects["dataset_info.json"])
    train = objects["pets-train.tfrecord-00000-of-00001"]
    assert (info["name"], info["version"], info["fileFormat"]) == ("pets", "1.0.0", "tfrecord")
    assert info["splits"][0] == {
        "name": "train",
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        "shardLengths": ["5"],
        "numBytes": str(len(train) - 5 * 16),
    }


def test_a_shard_can_be_made_again_after_a_broken_upload(tree: Tree) -> None:
    shard = next(plan(tree({"cat": 40}), name="pets").shards())
    broken = shard.stream()
    next(iter(broken))
    with pytest.raises(ValueError, match="not read to its end"):
        _ = broken.result
    first, note = bytes_of(shard)
    assert bytes_of(shard) == (first, note)
    assert (note.entry.bytes, note.entry.records) == (len(first), 40)


def test_a_large_shard_comes_in_pieces(tmp_path: Path) -> None:
    for index in range(6):
        write_image(tmp_path / "in" / "cat" / f"{index}.png", size=(8, 6))
    # bytes after the end of a PNG are allowed, and make a large file at once
    for file in sorted((tmp_path / "in" / "cat").iterdir()):
        file.write_bytes(file.read_bytes() + bytes(700_000))
    shard = next(plan(tmp_path / "in", name="pets").shards())
    sizes = [len(chunk) for chunk in shard.stream()]
    assert len(sizes) > 6
    assert max(sizes) < 1_000_000


def test_an_image_that_changes_after_the_plan_is_named(tree: Tree) -> None:
    """Also when its size and, as some programs do, its time of change stay the same."""
    root = tree({"cat": 3})
    file = root / "cat" / "1.png"
    planned = plan(root, name="pets")
    before = file.stat()
    file.write_bytes(file.read_bytes())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UsageError, match=r"'cat/1\.png' has changed") as caught:
        bytes_of(next(planned.shards()))
    assert caught.value.facts["file"] == "cat/1.png"


def test_an_image_that_goes_after_the_plan_is_named(tree: Tree) -> None:
    root = tree({"cat": 3})
    planned = plan(root, name="pets")
    (root / "cat" / "2.png").unlink()
    with pytest.raises(UsageError, match=r"Cannot read 'cat/2\.png': No such file"):
        bytes_of(next(planned.shards()))


@pytest.mark.parametrize(
    ("new", "removed", "message"),
    [
        ("dog/0.png", None, "'dog/0.png' is new"),
        (None, "cat/0.png", "'cat/0.png' was removed"),
        ("cat/1.png", None, "'cat/1.png' has changed"),
    ],
)
def test_images_that_come_go_or_change_before_the_end_stop_the_manifest(
    tree: Tree, new: str | None, removed: str | None, message: str
) -> None:
    root = tree({"cat": 3})
    planned = plan(root, name="pets")
    _, note = bytes_of(next(planned.shards()))
    if new:
        write_image(root / new)
    if removed:
        (root / removed).unlink()
    with pytest.raises(UsageError, match=message):
        planned.finish([note])


def test_a_shards_identity_is_that_of_its_own_records_and_options(tree: Tree) -> None:
    root = tree({"cat": 8})
    first = [shard.identity for shard in plan(root, name="pets", shards=4).shards()]
    assert len(set(first)) == 4
    assert [shard.identity for shard in plan(root, name="pets", shards=4).shards()] == first
    write_image(root / "cat" / "3.png", shade=99)
    repaired = [shard.identity for shard in plan(root, name="pets", shards=4).shards()]
    assert len(set(first) & set(repaired)) == 3
    other = [shard.identity for shard in plan(root, name="pets", shards=4, seed=1).shards()]
    assert not set(first) & set(other)


def test_bad_records_are_left_out_and_listed(tree: Tree, tmp_path: Path) -> None:
    root = tree({"cat": 8, "dog": 8})
    (root / "cat" / "3.png").write_bytes(b"")
    (root / "dog" / "1.png").write_bytes(b"GIF8")
    (root / "emu").mkdir()
    options: dict[str, Any] = {"name": "pets", "shards": 2}
    with pytest.raises(BadRecordsError, match=r"'emu' is empty"):
        plan(root, **options)
    objects = produce(plan(root, **options, skip_bad=True), skip_bad=True)
    manifest = decode_manifest(objects["manifest.json"])
    assert manifest.records == 14 == len(labels([objects[entry.file] for entry in manifest.shards], tmp_path))
    assert manifest.classes == ("cat", "dog")
    assert manifest.source.skipped == 3
    assert [str(record) for record in manifest.source.bad] == [
        "'cat/3.png' is empty",
        "'dog/1.png' cannot be decoded (not a GIF file)",
        "'emu' is empty",
    ]


def test_a_source_of_bad_records_alone_makes_no_dataset(tree: Tree) -> None:
    root = tree({"cat": 1})
    (root / "cat" / "0.png").write_bytes(b"")
    with pytest.raises(UsageError, match=r"All records of the split 'train' are bad: the first, 'cat/0.png'"):
        produce(plan(root, name="pets", skip_bad=True), skip_bad=True)


def test_there_is_no_manifest_for_half_a_dataset(tree: Tree) -> None:
    planned = plan(tree({"cat": 4}), name="pets", shards=2)
    first, second = (bytes_of(shard)[1] for shard in planned.shards())
    with pytest.raises(ValueError, match="00001-of-00002 was not made"):
        planned.finish([first])
    stranger = ShardResult(ShardEntry("other", 1, 1, ""), "")
    with pytest.raises(ValueError, match="not in the plan: other"):
        planned.finish([first, second, stranger])


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"name": "Cats-Dogs"}, "'Cats-Dogs' cannot be the name of a dataset", "for instance cats_dogs"),
        ({"name": "../x"}, "'../x' cannot be the name", "for instance x"),
        ({"name": "pets\n"}, "cannot be the name", "for instance pets"),
        ({"version": "1.0"}, "'1.0' cannot be the version", "1.0.0"),
        ({"version": "1.01.0"}, "'1.01.0' cannot be the version", "1.0.0"),
        ({"shard_size": 1_000_000}, "A shard of 1 MB is out of bounds", "--shards"),
        ({"shard_size": 2 << 30}, "is out of bounds", "1.07 GB"),
        ({"splits": "train=2"}, "Cannot read the splits", "train=0.8,test=0.2"),
        ({"shards": 5}, "The split 'train' has 4 records, fewer than 5 shards", "fewer"),
    ],
)
def test_an_option_that_cannot_be_meant_is_explained(
    tree: Tree, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tree({"cat": 4}), **{"name": "pets", **options})
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_source_that_is_not_there_names_the_nearest(tree: Tree) -> None:
    root = tree({"cat": 1})
    with pytest.raises(UsageError, match=r"There is no '.*/picture'") as caught:
        plan(root.parent / "picture", name="pets")
    assert caught.value.hint == "Did you mean pictures?"


def test_a_source_no_reader_takes_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.xyz").write_text("a,b\n")
    with pytest.raises(UsageError, match=r"table\.xyz' is not a source"):
        plan(tmp_path / "table.xyz", name="pets")


@pytest.mark.parametrize("column", ["/tmp/x", "../x", "a/../../x"])
def test_the_classes_of_a_column_with_a_path_as_its_name_are_in_no_folder(
    tmp_path: Path, column: str
) -> None:
    """TFDS gives their file the same name."""
    (tmp_path / "table.csv").write_text(f"x,{column}\n1,cat\n2,dog\n")
    files = produce(plan(tmp_path / "table.csv", name="pets", options=Options(label=column)))
    assert f"{column.replace('/', '.')}.labels.txt" in files


def test_a_column_that_can_name_no_file_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    column = "a\x1b[2Jb"
    (tmp_path / "table.csv").write_text(f"x,{column}\n1,cat\n2,dog\n")
    with pytest.raises(UsageError, match="which is named after a column"):
        plan(tmp_path / "table.csv", name="pets", options=Options(label=column))


def classes_file(names: Mapping[str, Sequence[str]], path: Path) -> Path:
    """Write a Parquet file as `datasets` does, with two records and so many columns of classes."""
    declared = {name: {"_type": "ClassLabel", "names": [*classes]} for name, classes in names.items()}
    table = pa.table({name: [0, 1] for name in names})
    content = json.dumps({"info": {"features": declared}})
    pq.write_table(table.replace_schema_metadata({"huggingface": content}), path)
    return path


def test_classes_of_two_columns_never_share_a_file(tmp_path: Path) -> None:
    file = classes_file({"a/b": "xy", "a.b": "yx"}, tmp_path / "two.parquet")
    with pytest.raises(UsageError) as caught:
        opened(plan(file, name="pets").source)
    assert caught.value.message == "The classes of 'a/b' and 'a.b' would be in the same file, a.b.labels.txt."
    assert caught.value.hint == "Rename one of them: TFDS writes '/' as '.' in that name."


def test_the_same_classes_of_two_columns_may_be_in_one_file(tmp_path: Path) -> None:
    objects = produce(plan(classes_file({"a/b": "xy", "a.b": "xy"}, tmp_path / "a.parquet"), name="pets"))
    assert objects["a.b.labels.txt"] == b"x\ny\n"


def identity(path: Path, **options: Any) -> str:
    planned = plan(path, name="pets", **options)
    opened(planned.source)
    return planned.identity


def test_pictures_of_two_versions_of_pillow_are_never_mixed(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({"cat": 2})
    table = tmp_path / "people.csv"
    table.write_text("age\n3\n")
    before = identity(root), identity(table)
    assert (identity(root), identity(table)) == before
    monkeypatch.setattr(PIL, "__version__", "99.0.0")
    assert identity(root) != before[0]
    assert identity(table) == before[1]


def test_tokens_by_two_versions_of_unicode_are_never_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "people.csv"
    table.write_text("name\nAnn\n")
    tokens = Options(tokens=TokenOptions("words", 4))
    before = identity(table), identity(table, options=tokens)
    monkeypatch.setattr(unicodedata, "unidata_version", "99.0.0")
    assert identity(table) == before[0]
    assert identity(table, options=tokens) != before[1]
