"""Names from a bucket as paths: what leaves a folder, or what a program obeys there, is refused.

No two files of a folder share a path, on any disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from tpuctl.local.confined_folder import UnsafeNameError, local_parts
from tpuctl.local.private_folder import Fold, Places, fold_of

GIT = [
    ".git", ".GIT", ".Git", ".git ", ".git.", ".git . .", "git~1", "GIT~1", "git~2", ".g\u200cit",
    "\ufeff.git",
    ".gi\u200et", ".git\u206f", ".git:x", ".git::$INDEX_ALLOCATION", "\uff0egit", ".\uff47it", ".hg",
    ".svn", ".jj",
]  # fmt: skip


@pytest.mark.parametrize("name", GIT)
@pytest.mark.parametrize("place", ["outputs/{}/config", "outputs/{}", "a/b/{}/hooks/x"])
def test_version_control_is_refused_anywhere(name: str, place: str) -> None:
    with pytest.raises(UnsafeNameError, match="version control"):
        local_parts(place.format(name))


@pytest.mark.parametrize("name", GIT)
def test_version_control_is_refused_at_the_top(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        local_parts(f"{name}/config")


@pytest.mark.parametrize("name", ["HEAD", "head", "Head", "a/HEAD", "a/HEAD.", "a/HEAD ", "a/HE\u200dAD"])
def test_the_file_that_makes_a_repository_is_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError, match="git repository"):
        local_parts(name)


@pytest.mark.parametrize(
    "name", ["tpuctl.toml", "a/tpuctl.toml", "TPUCTL.TOML", "tpuctl.toml.", "tpuctl.toml/x"]
)
def test_the_settings_of_tpuctl_are_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError, match="settings"):
        local_parts(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a/../../b", "\0",
        "a\0b",
        "a\nb", "a\rb", "a\x1b[0m", "a\x7f", "a\x85b", "a\u2028b", "a\ud800", "a\\b", "..\\a",
        "\\\\host\\x", "C:",
        "c:a", "C:/a", ".a", ".ssh/authorized_keys", "x" * 251, "a/" + "é" * 126 + "/b",
    ],
)  # fmt: skip
def test_a_name_that_is_no_path_below_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        local_parts(name)


@pytest.mark.parametrize(
    "name",
    [
        "run.json", "a/b/c", "a/.zarray", "a/.gitignore", "a/.github/x", "a/git", "a/xgit~1", "a/...",
        "a/..b", "-rf",
        "a b", "a/12:30", "a/$HOME", "a/*", "größe", "☃", "x" * 250, "head/weights", "heads", "HEAD.txt",
        "~", "a/~x",
        "checkpoints/ckpt-1.data-00000-of-00001", "tensorboard/events.out.tfevents.1.host.2.3.v2",
        "tpuctl.toml.txt",
    ],
)  # fmt: skip
def test_any_other_name_is_split_into_its_parts(name: str) -> None:
    assert local_parts(name) == tuple(name.split("/"))


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
