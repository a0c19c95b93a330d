from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.source_trees import examples, items, no_progress, only_bad, opened, produce
from tpuctl.data.options import Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Label, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.folders import read_text_files
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def write(root: Path, texts: dict[str, str | bytes]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def read_texts(root: Path) -> Source:
    return opened(read_text_files(LocalTree(root), Options(), no_progress))


REVIEWS: dict[str, str | bytes] = {
    "train/pos/1.txt": "great\r\nfilm\n",
    "train/neg/1.txt": "größer Mist",
    "test/pos/1.txt": "\ufeffgood",
}


def test_each_file_is_a_record_of_its_text_and_class(tmp_path: Path) -> None:
    source = read_texts(write(tmp_path, REVIEWS))
    assert source.features == {"text": Text(), "label": Label(("neg", "pos"))}
    assert examples(source) == [
        {"label": [1], "text": [b"good"]},
        {"label": [0], "text": ["größer Mist".encode()]},
        {"label": [1], "text": [b"great\r\nfilm\n"]},
    ]
    assert [(part.split, part.records) for part in source.parts] == [("test", 1), ("train", 2)]
    assert sum(part.size for part in source.parts) == pytest.approx(
        sum(len(record) for record in items(source) if isinstance(record, bytes)), rel=0.1
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "'pos/2.txt' is empty"), (b"\nna\xefve", "line 2 of 'pos/2.txt' is not UTF-8 text")],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert only_bad(read_texts(write(tmp_path, {"pos/1.txt": "x", "pos/2.txt": content}))) == message


def test_a_link_that_leaves_the_source_and_an_empty_class_are_bad(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {"pos/1.txt": "x"})
    (root / "neg").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "pos" / "2.txt").symlink_to(tmp_path / "secret.txt")
    assert [str(record).partition(", to")[0] for record in read_texts(root).bad] == [
        "'neg' is empty",
        "'pos/2.txt' is a link that leaves the source",
    ]


def test_a_file_that_changes_under_way_is_named(tmp_path: Path) -> None:
    source = read_texts(write(tmp_path, {"pos/1.txt": "x"}))
    write(tmp_path, {"pos/1.txt": "y"})
    with pytest.raises(UsageError, match=r"'pos/1.txt' has changed"):
        items(source)
    with pytest.raises(UsageError, match=r"'pos/1.txt' has changed"):
        source.check()


def test_types_are_refused_for_texts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has the fields text and label"):
        read_text_files(LocalTree(tmp_path), Options(label="x"), no_progress)


def test_a_folder_of_texts_is_told_from_one_of_images_and_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (plan(write(tmp_path / place, REVIEWS), name="reviews") for place in ("one", "two"))
    assert first.source.kind == "text"
    assert produce(first) == produce(second)


def test_empty_class_folders_alone_are_bad(tmp_path: Path) -> None:
    (tmp_path / "only/empty").mkdir(parents=True)
    source = read_texts(tmp_path / "only")
    assert [str(record) for record in source.bad] == ["'empty' is empty"]
    assert source.parts == ()
