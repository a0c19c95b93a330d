"""The code of two runs, file by file: what is told of each, and where the lines end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.record.comparison import FileDifference, differences


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where code is packed."""
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


def packed(folder: Path, **files: bytes) -> Bundle:
    """Return a bundle of these files, `.py` where a name has no dot."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "job.py").write_text("print(1)\n")
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return bundles.pack(lone(folder / "job.py"), tuple(folder / name.replace("__", ".") for name in files))


def compared(folder: Path, first: dict[str, bytes], second: dict[str, bytes]) -> list[FileDifference]:
    return differences(packed(folder, **first), packed(folder, **second), ("r1", "r2"))


def test_equal_code_has_none(folder: Path) -> None:
    assert compared(folder, {"a__txt": b"x"}, {"a__txt": b"x"}) == []


def test_a_changed_an_added_and_a_missing_file(folder: Path) -> None:
    first, second = {"a__txt": b"x\ny\n", "b__txt": b"old\n"}, {"a__txt": b"x\nz\n", "c__txt": b"new\n"}
    assert compared(folder, first, second) == [
        FileDifference(
            "a.txt", (4, 4), ("--- r1/a.txt", "+++ r2/a.txt", "@@ -1,2 +1,2 @@", " x", "-y", "+z")
        ),
        FileDifference("b.txt", (4, None), ("--- r1/b.txt", "+++ /dev/null", "@@ -1 +0,0 @@", "-old")),
        FileDifference("c.txt", (None, 4), ("--- /dev/null", "+++ r2/c.txt", "@@ -0,0 +1 @@", "+new")),
    ]


@pytest.mark.parametrize(
    ("data", "has_lines"),
    [
        (b"\0", False),
        (b"\xff\n", True),
        (b"x" * 9_999 + b"\n", True),
        (b"x" * 10_001, False),
        (b"x\n" + b"y" * 9_998 + b"\n" + (b"z" * 9_999 + b"\n") * 103, True),
        (b"x\n" + (b"z" * 9_999 + b"\n") * 105, False),
        (b"x\n" * 5000, True),
        (b"x\n" * 5001, False),
    ],
    ids=["binary", "latin", "a long line", "a longer line", "1 MiB", "more", "5000 lines", "5001 lines"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_no_text_or_long_has_no_lines(
    folder: Path, data: bytes, has_lines: bool, is_first: bool
) -> None:
    files = [{"a__bin": data}, {"a__bin": b"y\n"}]
    (difference,) = compared(folder, *(files if is_first else files[::-1]))
    assert bool(difference.lines) is has_lines
    assert sorted(difference.sizes) == sorted((len(data), 2))


def test_all_differences_together_have_2000_lines(folder: Path) -> None:
    """The other files are named without lines."""
    many = b"".join(b"%d\n" % number for number in range(1990))
    second = {"a__txt": many, "b__txt": b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "c__txt": b"x\n"}
    counts = [len(difference.lines) for difference in compared(folder, {}, second)]
    assert counts == [3 + 1990, 7, 0]


def test_a_single_file_has_2000_lines_at_most(folder: Path) -> None:
    many = b"".join(b"%d\n" % number for number in range(3000))
    (difference,) = compared(folder, {}, {"a__txt": many})
    assert len(difference.lines) == 2000
    assert difference.lines[-1] == "+1996"
