"""Where lines begin: blank ones are none, and a quoted line break ends none where cells are quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.data.source_trees import no_progress
from tpuctl.data.files import rows as contents_module
from tpuctl.data.files import rows as module
from tpuctl.data.files.rows import Contents, line_begins
from tpuctl.data.files.source_files import list_files
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


@contextmanager
def opened(folder: Path, data: bytes) -> Iterator[Contents]:
    (folder / "a.txt").write_bytes(data)
    contents = Contents(list_files(LocalTree.at(folder), re.compile("txt")), no_progress)
    try:
        yield contents
    finally:
        contents.close()


def begins(folder: Path, data: bytes, delimiter: bytes = b"") -> list[int]:
    with opened(folder, data) as contents:
        return [place for piece in line_begins(contents, 0, delimiter) for place in piece.tolist()]


@pytest.fixture(params=[1 << 20, 3, 4, 7], autouse=True)
def _block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in blocks of any size."""
    monkeypatch.setattr(contents_module, "BLOCK", request.param)


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (b"", []), (b"a", [0]), (b"a\n", [0]), (b"a\nb", [0, 2]), (b"a\n\nb\n\n", [0, 3]),
        (b"\n\na\n", [2]), (b"a\r\n\r\nb\r\n", [0, 5]), (b"\r\n", []), (b"\r", [0]), (b"\rx\n", [0]),
        (b"\r\r\n", [0]), (b"a b\n c\n", [0, 4]), (b"\xef\xbb\xbfa\nb\n", [3, 5]), (b"\xef\xbb\xbf", []),
        (b"\xef\xbba\nb", [0, 4]), (b'"a\nb"\n', [0, 3]), (b"long line\nx", [0, 10]),
    ],
)  # fmt: skip
def test_lines_begin_behind_line_feeds(tmp_path: Path, data: bytes, places: list[int]) -> None:
    assert begins(tmp_path, data) == places


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (b"a,b\nc,d\n", [0, 4]), (b'"a\nb",c\nd\n', [0, 8]), (b'a,"b\n\nc"\nd', [0, 9]),
        (b'a,"b""\nc"\nd', [0, 10]), (b'5" disk\n6\n', [0, 8]), (b'a,5" x\n"b\nc"\n', [0, 7]),
        (b'"a"\n"b\n"\n', [0, 4]), (b'a;"b\nc"\n', [0, 5]), (b'"never\nclosed', [0]),
        (b'x\r\n"a\nb"\r\ny', [0, 3, 10]),
    ],
)  # fmt: skip
def test_a_line_break_in_a_quoted_cell_ends_no_line(tmp_path: Path, data: bytes, places: list[int]) -> None:
    assert begins(tmp_path, data, b",") == places


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_a_file_of_utf_16_is_named(tmp_path: Path, mark: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        begins(tmp_path, mark + "a\n".encode("utf-16-le"))
    assert refused.value.message == "'a.txt' is UTF-16 text, expected UTF-8."
    assert refused.value.hint == "Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW."
    assert begins(tmp_path, mark[::-1][:1] + b"a") == [0]


def test_a_line_that_does_not_end_is_named_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents_module, "BLOCK", 7)
    monkeypatch.setattr(module, "LONGEST", 20)
    assert begins(tmp_path, b"a\n" + b"x" * 20 + b"\nb") == [0, 2, 23]
    with pytest.raises(UsageError) as refused:
        begins(tmp_path, b'a\n\n"' + b"x\n" * 60, b",")
    assert refused.value.message.startswith("Line 3 of 'a.txt' does not end within ")
    assert refused.value.hint == (
        "Close the quote that was opened there; or give the right file, if this is no text."
    )
    assert refused.value.facts == {"file": "a.txt", "line": 3}
