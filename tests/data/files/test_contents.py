"""Files are read at any place, packed or not, open or not, and lines are counted as editors do."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.data.source_trees import no_progress
from tpuctl.data.files import rows as module
from tpuctl.data.files.rows import Contents
from tpuctl.data.files.source_files import list_files
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError

OpenContents = Callable[..., Contents]
TEXT = b"one\ntwo\n\nfour"


@pytest.fixture
def open_contents(tmp_path: Path) -> Iterator[OpenContents]:
    """Write files and open them: of each name the packed or the plain content."""
    opened: list[Contents] = []

    def call(progress: Callable[[int, int], None] = no_progress, **files: bytes) -> Contents:
        for name, data in files.items():
            (tmp_path / name.replace("__", ".")).write_bytes(data)
        opened.append(Contents(list_files(LocalTree.at(tmp_path), re.compile(r"\.txt(\.gz)?$")), progress))
        return opened[-1]

    yield call
    for contents in opened:
        contents.close()


@pytest.mark.parametrize("most", [128, 3, 2])
def test_every_file_is_read_at_any_place(
    open_contents: OpenContents, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(module, "_OPEN", most)
    contents = open_contents(a__txt=TEXT, b__txt__gz=gzip.compress(TEXT * 2), c__txt=b"")
    assert contents.sizes.tolist() == [13, 26, 0]
    assert [contents.read(file, 4, 3) for file in range(3)] == [b"two", b"two", b""]
    assert contents.read(1, 13, 3) == b"one"
    assert (contents.read(0, 12, 9), contents.read(0, 13, 1)) == (b"r", b"")
    assert [b"".join(contents.blocks(file)) for file in range(3)] == [TEXT, TEXT * 2, b""]


def test_packed_files_lie_one_after_the_other(open_contents: OpenContents) -> None:
    reports: list[tuple[int, int]] = []
    contents = open_contents(
        lambda done, total: reports.append((done, total)),
        a__txt__gz=gzip.compress(b"first"),
        b__txt__GZ=gzip.compress(b"2nd"),
        c__txt=b"plain",
        d__txt__gz=gzip.compress(b"3rd"),
    )
    assert [contents.read(file, 0, contents.sizes[file]) for file in range(4)] == [
        b"first", b"2nd", b"plain", b"3rd",
    ]  # fmt: skip
    assert contents.sizes.tolist() == [5, 3, 5, 3]
    assert reports == [(5, 0), (8, 0), (11, 0)]


@pytest.mark.parametrize("block", [1 << 20, 1, 4, 5])
def test_lines_are_counted_from_1(
    open_contents: OpenContents, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    contents = open_contents(a__txt=TEXT, b__txt=b"x\n")
    assert [contents.line(0, at) for at in (0, 3, 4, 8, 9, 12)] == [1, 1, 2, 3, 4, 4]
    assert [contents.line(1, at) for at in (0, 1)] == [1, 1]
    assert list(contents.blocks(0)) == [TEXT[at : at + block] for at in range(0, len(TEXT), block)]


def test_a_damaged_file_is_named_and_nothing_stays_open(open_contents: OpenContents) -> None:
    with pytest.raises(UsageError, match=r"'b\.txt\.gz' is a damaged gzip file"):
        open_contents(a__txt__gz=gzip.compress(TEXT), b__txt__gz=gzip.compress(TEXT)[:-9])


def test_a_file_that_has_become_shorter_has_fewer_bytes(open_contents: OpenContents, tmp_path: Path) -> None:
    contents = open_contents(a__txt=TEXT)
    (tmp_path / "a.txt").write_bytes(TEXT[:5])
    assert contents.read(0, 4, 3) == b"t"


def test_what_a_reader_unpacks_itself_is_closed_with_the_rest(open_contents: OpenContents) -> None:
    contents = open_contents(a__txt=TEXT)
    first, second = contents.temp_file(), contents.temp_file()
    second.append(b"x")
    assert first is not second
    contents.close()
    for file in (first, second):
        with pytest.raises(ValueError, match="closed"):
            file.finish()
