from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.data.archives.tar_files import unpack
from tests.data.archives.test_tree import zstd
from tests.data.source_trees import examples, items, no_progress, opened, png
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Image, Label, Tensor, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.errors import UsageError


def read(path: Path) -> Source:
    return opened(open_source(path, None, Options(), no_progress))


def shard(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def sample(key: str, number: int) -> dict[str, bytes]:
    content = json.dumps({"width": number, "source": "x"}).encode()
    return {
        f"{key}.png": png(100 + number), f"{key}.cls": str(number).encode(), f"{key}.json": content,
        f"{key}.txt": f"text {number}".encode(),
    }  # fmt: skip


@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_members_of_one_name_are_a_record(tmp_path: Path, suffix: str) -> None:
    for number in range(2):
        members = {**sample(f"a/{2 * number}", 2 * number), **sample(f"a/{2 * number + 1}", 2 * number + 1)}
        shard(tmp_path / f"train-000{number}.{suffix}", members)
    shard(tmp_path / f"val-0000.{suffix}", sample("0", 4))
    source = read(tmp_path)
    assert (source.kind, source.bad) == ("webdataset", ())
    assert [(part.split, part.records) for part in source.parts] == [("train", 4), ("validation", 1)]
    assert source.features == {
        "image": Image((None, None, 3)),
        "label": Label(("0", "1", "2", "3", "4")),
        "width": Tensor("int64"),
        "source": Text(),
        "text": Text(),
    }
    assert examples(source) == [
        {
            "image": [png(100 + n)],
            "label": [n],
            "width": [n],
            "source": [b"x"],
            "text": [f"text {n}".encode()],
        }
        for n in range(5)
    ]


def test_shards_packed_by_zstandard_are_read(tmp_path: Path) -> None:
    for number in range(2):
        zstd(shard(tmp_path / f"train-{number}.tar", sample(str(number), number))).rename(
            tmp_path / f"train-{number}.tar.zst"
        )
        (tmp_path / f"train-{number}.tar").unlink()
    assert [record["label"] for record in examples(read(tmp_path))] == [[0], [1]]


def test_one_shard_and_unpacked_shards_are_read(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {**sample("0", 0), **sample("1", 1)})
    unpack(path, tmp_path / "unpacked")
    assert read(path).kind == read(tmp_path / "unpacked").kind == "webdataset"
    assert examples(read(path)) == examples(read(tmp_path / "unpacked"))


def test_several_pictures_of_a_sample_have_their_names(tmp_path: Path) -> None:
    members = {"0.left.png": png(100), "0.right.png": png(120), "0.cls": b"1"}
    source = read(shard(tmp_path / "a.tar", members))
    assert examples(source) == [{"left": [png(100)], "right": [png(120)], "label": [1]}]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"1.png": None}, "'1' has no image"),
        ({"1.cls": b"x"}, "'1.cls' cannot be read: 'x' is no whole number"),
        ({"1.cls": b"1_0"}, "'1.cls' cannot be read: '1_0' is no whole number"),
        ({"1.image.jpg": png(101)}, "'1.png' is of the field 'image', as '1.image.jpg' is"),
        ({"1.cls": None}, "'1' has no label in the column 'label'"),
        ({"1.txt": b"\xff"}, "'1.txt' cannot be read: it is not UTF-8 text"),
        ({"1.json": b"{"}, "'1.json' cannot be read: Input data was truncated"),
        ({"1.json": b"[]"}, "'1.json' cannot be read: it is not a JSON object"),
        ({"1.png": b""}, "'1.png' is empty"),
    ],
)
def test_a_sample_that_cannot_be_used_is_named(
    tmp_path: Path, change: dict[str, bytes | None], why: str
) -> None:
    members = {**sample("0", 0), **sample("1", 1), **sample("2", 2), **change}
    path = shard(tmp_path / "a.tar", {name: data for name, data in members.items() if data is not None})
    source = read(path)
    assert [str(bad) for bad in (*source.bad, *items(source)) if isinstance(bad, BadRecord)] == [why]


def test_a_member_that_could_run_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'0\.pyd' is a member of a kind that is not read"):
        read(shard(tmp_path / "a.tar", {**sample("0", 0), "0.pyd": b"cos"}))


def test_class_folders_in_an_archive_are_no_samples(tmp_path: Path) -> None:
    assert read(shard(tmp_path / "a.tar", {"cat/1.png": png(100), "dog/1.png": png(100)})).kind == "images"


def test_a_shard_that_changes_under_way_is_named(tmp_path: Path) -> None:
    shard(tmp_path / "train-0.tar", sample("0", 0))
    source = read(tmp_path)
    shard(tmp_path / "train-0.tar", sample("1", 1))
    with pytest.raises(UsageError, match="has changed"):
        source.check()


@pytest.mark.parametrize("name", ["train-1.tar", "more/train-1.tar"])
def test_a_shard_that_appears_under_way_is_named(tmp_path: Path, name: str) -> None:
    shard(tmp_path / "train-0.tar", sample("0", 0))
    source = read(tmp_path)
    source.check()
    shard(tmp_path / name, sample("1", 1))
    with pytest.raises(UsageError, match=f"'{name}' is new"):
        source.check()


def test_a_shard_that_is_removed_under_way_is_named(tmp_path: Path) -> None:
    for number in range(2):
        shard(tmp_path / f"train-{number}.tar", sample(str(number), number))
    source = read(tmp_path)
    (tmp_path / "train-1.tar").unlink()
    with pytest.raises(UsageError, match=r"'train-1\.tar' was removed"):
        source.check()


def test_a_key_of_the_json_that_another_member_has_gets_a_longer_name(tmp_path: Path) -> None:
    content = json.dumps({"image": "a.png", "text": "of the JSON"}).encode()
    members = {"0.png": png(100), "0.json": content, "0.txt": b"of the text"}
    source = read(shard(tmp_path / "a.tar", members))
    assert source.features["image"] == Image((None, None, 3))
    assert examples(source) == [
        {
            "image": [png(100)],
            "text": [b"of the text"],
            "json/image": [b"a.png"],
            "json/text": [b"of the JSON"],
        }
    ]


def test_fields_may_be_in_very_many_members(tmp_path: Path) -> None:
    """Each was compared with a copy of the names of all before it."""
    members = {f"0.f{number}.json": b'{"k%d": %d}' % (number, number) for number in range(300)}
    path = shard(tmp_path / "train-0000.tar", {**members, "0.x.json": b'{"k1": 7}', "0.png": png(1)})
    (record,) = examples(opened(open_source(path, "webdataset", Options(), no_progress)))
    assert (len(record), record["k299"], record["json/k1"]) == (302, [299], [7])


def test_samples_without_pictures_and_sounds_are_refused(tmp_path: Path) -> None:
    path = shard(tmp_path / "train-0000.tar", {"0.json": b'{"a": 1}'})
    with pytest.raises(UsageError, match=r"samples of 'train-0000\.tar' have no pictures and no sounds"):
        opened(open_source(path, "webdataset", Options(), no_progress))
