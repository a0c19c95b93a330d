"""Members of WebDataset's samples: https://github.com/webdataset/webdataset, autodecode.py."""

from __future__ import annotations

import pytest

from tpuctl.data.sources.names import ending, is_value, sample_key, shows_samples


@pytest.mark.parametrize(
    ("path", "key", "end"),
    [
        ("0001.jpg", "0001", "jpg"),
        ("0001.left.PNG", "0001", "png"),
        ("a.b/0001.seg.png", "a.b/0001", "png"),
        ("a/b", "a/b", "a/b"),
        (".cls", "", "cls"),
    ],
)
def test_a_sample_is_what_comes_before_the_first_point(path: str, key: str, end: str) -> None:
    assert (sample_key(path), ending(path)) == (key, end)


@pytest.mark.parametrize(
    "end",
    ["cls", "cls2", "index", "inx", "id", "count", "txt", "text", "transcript", "caption", "json", "TXT"],
)
def test_numbers_texts_and_json_are_values(end: str) -> None:
    assert is_value(f"a/0001.{end}")
    assert not is_value(f"a/0001.{end}x")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1.jpg", "1.cls"], True),
        (["a/1.cls"], True),
        (["a/1.cls2"], True),
        (["1.jpg", "1.txt"], True),
        (["1.jpg", "1.json"], True),
        (["1.jpg", "2.txt"], False),
        (["a/1.jpg", "a/1.txt"], False),
        (["1.txt", "1.json"], False),
        (["1.jpg", "1.png"], True),
        (["1.jpg", "1.xyz"], False),
        (["1.wav", "1.transcript"], True),
        (["cls", "a.b/cls"], False),
        ([], False),
    ],
)
def test_samples_are_told_by_their_members(names: list[str], expected: bool) -> None:
    assert shows_samples(names) is expected
