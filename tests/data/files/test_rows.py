"""Rows of several files have one index each: where they are, and how many are read at once.

Files are read at any place, packed or not, open or not, and lines are counted as editors do.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.data.source_trees import no_progress
from tpuctl.data.files import rows as module
from tpuctl.data.files.rows import Contents, Rows, line_begins
from tpuctl.data.files.source_files import list_files
from tpuctl.data.source import Part
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError

Open = Callable[..., Rows]
A, B, C = b"h1\na1\n\na2\n", b"h2\n", b"h3\nc1\nc2\nc3"


@pytest.fixture
def open_rows(tmp_path: Path) -> Iterator[Open]:
    """Write files and find their rows; names may be those of splits."""
    opened: list[Rows] = []

    def call(
        *, header: bool = True, progress: Callable[[int, int], None] = no_progress, **files: bytes
    ) -> Rows:
        for name, data in files.items():
            (tmp_path / f"{name}.txt").write_bytes(data)
        listed = list_files(LocalTree.at(tmp_path), re.compile(r"\.txt$"))
        opened.append(Rows(listed, line_begins, header=header, progress=progress))
        return opened[-1]

    yield call
    for rows in opened:
        rows.close()


def test_a_header_is_no_row_and_blank_lines_belong_to_the_row_before(open_rows: Open) -> None:
    rows = open_rows(a=A, b=B, c=C, d=b"")
    assert len(rows) == 5
    assert rows.firsts.tolist() == [0, 2, 2, 5, 5]
    assert [rows.header(file) for file in range(4)] == [b"h1\n", b"h2\n", b"h3\n", b""]
    every = [b"a1\n\n", b"a2\n", b"c1\n", b"c2\n", b"c3"]
    assert rows.read(np.arange(5)) == every
    assert rows.read(np.array([4, 0, 3, 0])) == [every[4], every[0], every[3], every[0]]
    assert rows.read(np.zeros(0, np.int64)) == []
    assert [rows.file_of(index) for index in range(5)] == [0, 0, 2, 2, 2]
    assert [rows.line(index) for index in range(5)] == [2, 4, 2, 3, 4]


def test_without_a_header_the_first_line_is_a_row(open_rows: Open) -> None:
    rows = open_rows(header=False, a=A, b=B, c=C)
    assert len(rows) == 8
    assert rows.read(np.array([0, 3, 4])) == [b"h1\n", b"h2\n", b"h3\n"]
    assert rows.line(0) == 1


@pytest.mark.parametrize(
    ("most", "size", "batches"), [(16_384, 2 << 20, [2, 3]), (2, 2 << 20, [2, 2, 1]), (9, 1, [1] * 5)]
)
def test_a_batch_has_so_many_rows_and_about_so_many_bytes_of_one_file(
    open_rows: Open, monkeypatch: pytest.MonkeyPatch, most: int, size: int, batches: list[int]
) -> None:
    monkeypatch.setattr(module, "_BATCH", most)
    monkeypatch.setattr(module, "_BATCH_BYTES", size)
    rows = open_rows(a=A, b=B, c=C)
    listed = list(rows.in_order())
    assert [len(batch) for batch in listed] == batches
    assert [row for batch in listed for row in batch] == rows.read(np.arange(5))


@pytest.mark.parametrize(("count", "most"), [(100, 40), (300, 40), (10, 10)])
def test_a_sample_is_spread_over_all_rows(
    open_rows: Open, monkeypatch: pytest.MonkeyPatch, count: int, most: int
) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 40)
    sample = open_rows(header=False, a=b"row\n" * count).sample()
    assert (len(sample), sample[0], sample[-1]) == (most, 0, count - 1)


def test_of_long_rows_sixteen_are_a_sample(open_rows: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 1)
    assert len(open_rows(header=False, a=b"row\n" * 100).sample()) == 16


def test_sizes_of_splits_are_estimated_from_their_own_rows(open_rows: Open) -> None:
    rows = open_rows(train=A, test=C, validation=B)
    assert rows.parts({0: 10, 1: 20, 3: 100}) == (
        Part("test", 3, 45), Part("train", 2, 200), Part("validation", 0, 0),
    )  # fmt: skip
    assert rows.parts({0: 10, 1: 20}) == (
        Part("test", 3, 45), Part("train", 2, 30), Part("validation", 0, 0),
    )  # fmt: skip
    assert [part.size for part in rows.parts({})] == [0, 0, 0]
    assert list(rows.splits()) == [
        ("test", 0, 3, len(C)), ("train", 3, 5, len(A)), ("validation", 5, 5, len(B)),
    ]  # fmt: skip


def test_progress_is_in_bytes_of_all_files(open_rows: Open) -> None:
    reports: list[tuple[int, int]] = []
    open_rows(progress=lambda done, total: reports.append((done, total)), a=A, b=B, c=C)
    assert reports == [(7, 24), (10, 24), (22, 24)]


def test_a_file_of_which_nothing_is_found_is_closed(open_rows: Open, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(A)

    def fail(contents: object, file: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        raise KeyError

    with pytest.raises(KeyError):
        Rows(list_files(LocalTree.at(tmp_path), re.compile("txt")), fail, header=True, progress=no_progress)


class TestRowsThatAreVeryMuchLongerThanMost:
    """As in a few megabytes of gzip: their mean says nothing."""

    SIZES = (10, 10, 3000, 3000, 10, 3000, 10, 3000)

    @pytest.fixture
    def skewed(self, open_rows: Open, monkeypatch: pytest.MonkeyPatch) -> Rows:
        monkeypatch.setattr(module, "_MOST_SAMPLED", 3500)
        monkeypatch.setattr(module, "_MOST_READ", 4000)
        return open_rows(header=False, a=b"".join(b"x" * (size - 1) + b"\n" for size in self.SIZES))

    def test_are_few_at_once(self, skewed: Rows) -> None:
        listed = list(skewed.in_order())
        assert [row for batch in listed for row in batch] == skewed.read(np.arange(8))
        assert max(sum(map(len, batch)) for batch in listed) < 4000 + 3000
        batches = [batch.tolist() for batch in skewed.batches(np.array([2, 7, 0, 3, 5, 1]))]
        assert [index for batch in batches for index in batch] == [2, 7, 0, 3, 5, 1], "in their order"
        assert len(batches) > 2

    def test_are_left_out_of_a_sample(self, skewed: Rows) -> None:
        assert skewed.sample().tolist() == [0, 1, 2, 4, 6]

    def test_are_the_sample_if_there_are_no_others(
        self, open_rows: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_MOST_SAMPLED", 5)
        assert len(open_rows(header=False, a=b"x" * 50 + b"\n" + b"y" * 60).sample()) == 1

    def test_change_nothing_where_all_fit(self, open_rows: Open) -> None:
        rows = open_rows(header=False, a=b"x\n" * 100)
        assert rows.sample().tolist() == list(range(100))
        assert [len(batch) for batch in rows.batches(np.arange(100))] == [100]


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
