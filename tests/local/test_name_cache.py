"""Names for completion: fresh, plain, of this user alone; a broken file is an empty one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tpuctl.local.name_cache import FRESH, MOST_NAMES, NameCache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "completion" / "names.json"


def test_names_are_kept_by_their_scope(path: Path) -> None:
    NameCache(path).replace("nodes sim a", ["n1", "n2"])
    NameCache(path).add("nodes sim b", "n3")
    NameCache(path).add("nodes sim a", "n4")
    NameCache(path).remove("nodes sim a", ["n1"])
    assert NameCache(path).names("nodes sim a") == ["n2", "n4"]
    assert NameCache(path).names("nodes sim b") == ["n3"]
    assert NameCache(path).names("nodes gcp a") == []


def test_the_file_is_of_its_user_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        NameCache(path).replace("runs", ["r"])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name",
    ["", "-rf", "--help", "a b", "a;b", "$(touch x)", "`id`", "a\n", "\n", "a\x1b[31m", "a\x07", "a'b", 'a"b',
     "*", "a*", "?", "[a]", "{a,b}", "~root", "a:b", "a,b", "a\tb", "a|b", "a&b", "a>b", "a\\b", "é",
     "a" * 129, ".hidden", "/etc", "!x", "a!b", "a#b", "\u202e", "a=b", "١"],
)  # fmt: skip
def test_a_name_that_a_shell_or_a_terminal_could_take_for_more_is_dropped(path: Path, name: str) -> None:
    NameCache(path).replace("runs", ["plain", name])
    assert NameCache(path).names("runs") == ["plain"]
    content = json.loads(path.read_text())
    content["runs"][1].append(name)  # also where another program wrote it
    path.write_text(json.dumps(content))
    assert NameCache(path).names("runs") == ["plain"]


@pytest.mark.parametrize("age", [FRESH + 1, -60])
def test_old_names_and_those_of_the_future_are_not_offered(path: Path, age: float) -> None:
    NameCache(path).replace("runs", ["r"])
    path.write_text(json.dumps({"runs": [time.time() - age, ["r"]]}))
    assert NameCache(path).names("runs") == []


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "null", '{"runs": 1}', '{"runs": [1]}', '{"runs": [1, [1]]}',
                '{"runs": [[], []]}', "[" * 100_000, "\xff", '{"runs": [1, 2]}', "x" * (1 << 19)],
)  # fmt: skip
def test_a_broken_file_is_empty_and_written_anew(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content, "latin-1")
    assert NameCache(path).names("runs") == []
    NameCache(path).replace("runs", ["r"])
    assert NameCache(path).names("runs") == ["r"]


def test_a_link_and_a_pipe_are_not_read(path: Path, tmp_path: Path) -> None:
    NameCache(path).replace("runs", ["r"])
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert NameCache(path).names("runs") == []
    path.unlink()
    os.mkfifo(path)
    assert NameCache(path).names("runs") == []


def test_a_folder_that_cannot_be_written_fails_no_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    NameCache(tmp_path / "file" / "names.json").replace("runs", ["r"])


def test_very_many_names_are_the_newest(path: Path) -> None:
    NameCache(path).replace("runs", [f"r{number}" for number in range(MOST_NAMES + 10)])
    assert NameCache(path).names("runs")[0] == "r10"
