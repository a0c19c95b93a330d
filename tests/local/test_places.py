"""No two files of a folder share a path, on any disk."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from tpuctl.local.confined_folder import UnsafeNameError
from tpuctl.local.private_folder import Fold, Places, fold_of


def exact(name: str) -> str:
    return name


def as_on_macos(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def refused(fold: Fold, *names: str) -> list[str]:
    """Take the paths in order and return those that cannot be."""
    places, wrong = Places(fold), []
    for name in names:
        try:
            places.take(tuple(name.split("/")))
        except UnsafeNameError:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["a", "b", "c/a", "c/b", "c/d/e"], []),
        (["a", "a"], ["a"]),
        (["a", "a/b"], ["a/b"]),
        (["a/b", "a"], ["a"]),
        (["a/b/c", "a", "a/b", "a/b/d"], ["a", "a/b"]),
        (["a", "a/b/c", "a/b"], ["a/b/c", "a/b"]),
        (["a", "ab", "a b/c"], []),
    ],
)
def test_a_path_is_one_file_or_one_folder(names: list[str], wrong: list[str]) -> None:
    assert refused(exact, *names) == wrong


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "A"),
        ("x/a", "X/A"),
        ("\u00e9", "e\u0301"),
        ("straße", "STRASSE"),
        ("out/x", "OUT"),
        ("OUT", "out/x"),
    ],
)
def test_names_that_the_disk_takes_for_one_are_one_path(first: str, second: str) -> None:
    assert refused(as_on_macos, first, second) == [second]
    assert refused(exact, first, second) == []


def test_folders_that_the_disk_takes_for_one_share_their_files() -> None:
    assert refused(as_on_macos, "Out/x", "out/y") == []


def test_how_a_disk_compares_names_is_tried_on_it(tmp_path: Path) -> None:
    fold = fold_of(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").touch()
    assert (fold("A") == fold("a")) == os.path.lexists(tmp_path / "A")


def test_a_python_whose_file_names_are_ascii_says_so(tmp_path: Path) -> None:
    """`pull` ended with the report of a bug, again at each continuation of `run --down`."""
    program = (
        "import pathlib, sys; from tpuctl.local import private_folder; "
        "private_folder.fold_of(pathlib.Path(sys.argv[1]))"
    )
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, env=ascii_only, capture_output=True, text=True, check=False)
    assert "OSError" in ended.stderr
    assert "set PYTHONUTF8=1" in ended.stderr
