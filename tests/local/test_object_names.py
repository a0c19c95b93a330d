"""Names from a bucket as paths: what leaves a folder, or what a program obeys there, is refused."""

from __future__ import annotations

import pytest

from tpuctl.local.confined_folder import UnsafeNameError, local_parts

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
