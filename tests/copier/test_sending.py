"""What is listed and sent of files."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.copier.streams import played
from tpuctl.copier.sending import END, Item, StoppedError, line, list_tree, send, top_name

TIME = 1_700_000_000_123_456_789
Listed = list[tuple[str, Any]]


def listed(top: Path, name: str) -> tuple[Listed, Listed]:
    """What is listed below a folder, and what is left out with the reason."""
    items = list(list_tree(str(top), name))
    left_out = [(words[1], words[2]) for _, words in items if words[0] == "left out"]
    return [(path, words) for path, words in items if words[0] != "left out"], left_out


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("f", "f"), ("a/f", "f"), ("/a/folder/", "folder"), ("folder//", "folder"), ("folder/.", ""),
        (".", ""), ("", ""), ("..", ""), ("a/..", ""), ("/", ""), (".hidden", ".hidden"), ("a/...", "..."),
    ],
)  # fmt: skip
def test_a_copy_has_the_last_name_of_a_path(path: str, name: str) -> None:
    assert top_name(path) == name


class TestListing:
    def test_a_file_has_its_size_mode_and_time(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"12345")
        (tmp_path / "f").chmod(0o4750)
        os.utime(tmp_path / "f", ns=(0, TIME))
        entry = ("file", "g", 5, 0o750, TIME / 1e9)
        assert listed(tmp_path / "f", "g") == ([(str(tmp_path / "f"), entry)], [])

    def test_a_folder_comes_before_what_is_in_it_by_name(self, tmp_path: Path) -> None:
        top = tmp_path / "top"
        (top / "b").mkdir(parents=True)
        for name in ("c", "b/f", "a"):
            (top / name).touch()
        items, _ = listed(top, "copy")
        assert [words[:2] for _, words in items] == [
            ("folder", "copy"), ("file", "copy/a"), ("folder", "copy/b"), ("file", "copy/b/f"),
            ("file", "copy/c"),
        ]  # fmt: skip
        assert [words[2] for _, words in items] == [0] * 5
        assert [path for path, _ in items] == [str(top / name) for name in ("", "a", "b", "b/f", "c")]

    def test_contents_have_no_folder_above_them(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d/f").touch()
        assert [words[1] for _, words in listed(tmp_path, "")[0]] == ["d", "d/f"]

    def test_links_are_followed_within_the_folder_only(self, tmp_path: Path) -> None:
        top, outside = tmp_path / "top", tmp_path / "top-secret"
        for folder in (top / "d", outside):
            folder.mkdir(parents=True)
            (folder / "f").touch()
        targets = {"inside": top / "d", "file": top / "d/f", "out": outside, "around": top, "nothing": "none"}
        for name, target in targets.items():
            (top / name).symlink_to(target)
        (top / "d/up").symlink_to(top / "d")
        items, skipped = listed(top, "t")
        paths = [(words[1], words[0]) for _, words in items]
        assert paths == [
            ("t", "folder"), ("t/d", "folder"), ("t/d/f", "file"), ("t/file", "file"),
            ("t/inside", "folder"), ("t/inside/f", "file"),
        ]  # fmt: skip
        around = "is a link that leads out of the folder, or around in it"
        assert skipped == [
            (str(top / "around"), around), (str(top / "d/up"), around), (str(top / "d/up"), around),
            (str(top / "nothing"), "No such file or directory"), (str(top / "out"), around),
        ]  # fmt: skip

    def test_folders_in_each_other_without_end_are_left_out(self, tmp_path: Path) -> None:
        folder = tmp_path / "top"
        for _ in range(600):
            folder.mkdir()
            folder /= "a"
        items, ((_, reason),) = listed(tmp_path / "top", "copy")
        assert (len(items), reason) == (201, "lies in more than 200 folders")

    def test_the_top_itself_may_be_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        (tmp_path / "link").symlink_to("f")
        [(path, words)], _ = listed(tmp_path / "link", "link")
        assert (path, words[:3]) == (str(tmp_path / "f"), ("file", "link", 1))

    def test_what_is_no_file_or_is_not_there_is_left_out_with_the_reason(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert listed(tmp_path, "t")[1] == [(str(tmp_path / "pipe"), "is no file and no folder")]
        assert listed(tmp_path / "none", "t") == ([], [(str(tmp_path / "none"), "No such file or directory")])


class TestSending:
    def test_what_is_not_wanted_is_not_sent(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1")
        (tmp_path / "b").write_text("2")
        listed = [item for name in "ab" for item in list_tree(str(tmp_path / name), name)]
        out, reports = io.BytesIO(), list[tuple[int, int]]()
        send(listed, played(line("go") + b"01"), out, lambda *report: reports.append(report))
        said, _, sent = out.getvalue().partition(line("end"))
        assert [json.loads(text)[:3] for text in said.splitlines()] == [["file", "a", 1], ["file", "b", 1]]
        with tarfile.open(mode="r|", fileobj=io.BytesIO(sent)) as archive:
            assert [(info.name, END in info.pax_headers) for info in archive] == [
                ("b", False),
                ("note", True),
            ]
        assert reports == [(1, 2), (2, 2)]

    def test_an_end_that_goes_or_says_why_it_cannot_take_anything_gets_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1")
        for answer, error in (
            (b"", EOFError), (line("go"), EOFError), (line("error", "read-only"), StoppedError),
        ):  # fmt: skip
            out = io.BytesIO()
            with pytest.raises(error):
                send(list_tree(str(tmp_path / "a"), "a"), played(answer), out, lambda *_: None)
            assert out.getvalue().endswith(line("end"))

    def test_a_long_list_is_sent_in_pieces_as_it_is_made(self) -> None:
        made, written = 0, list[int]()

        def listed() -> Iterator[Item]:
            nonlocal made
            for made in range(1000):  # noqa: B007
                yield "x", ("file", "x" * 100, 1, 0, 0)

        class Out:
            def write(self, data: bytes) -> None:
                written.append(made)

        with pytest.raises(EOFError):
            send(listed(), played(), Out(), lambda *_: None)
        assert len(written) > 10, "the other end sees a sign of life"

    def test_memory_does_not_grow_with_the_files_of_an_archive(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1")
        (item,) = list_tree(str(tmp_path / "a"), "a")

        class Out:
            def write(self, data: bytes) -> None:
                """Take nothing."""

        def peak(count: int) -> int:
            tracemalloc.start()
            try:
                send([item] * count, played(line("go") + b"1" * count), Out(), lambda *_: None)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        assert peak(300) - peak(50) < 250 * 200, "but for the list"
