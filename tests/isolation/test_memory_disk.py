"""Where the temporary folders of tests are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.isolation import memory_disk
from tests.isolation.memory_disk import CHOICES, LEFT, is_usable


@pytest.fixture(autouse=True)
def _free_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in CHOICES:
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(memory_disk, "MEMORY", tmp_path)


@pytest.mark.parametrize("usable", [False, True])
def test_a_place_that_is_usable_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usable: bool
) -> None:
    monkeypatch.setattr(memory_disk, "is_usable", lambda *_: usable)
    memory_disk.pytest_configure()
    assert os.environ["PYTEST_DEBUG_TEMPROOT"] == (str(tmp_path) if usable else "")


@pytest.mark.parametrize("name", CHOICES)
def test_the_users_choice_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(memory_disk, "is_usable", lambda *_: True)
    monkeypatch.setenv(name, "/their/place")
    memory_disk.pytest_configure()
    assert os.environ["PYTEST_DEBUG_TEMPROOT"] in ("", "/their/place")


def test_a_place_needs_room_on_it_and_beside_it(tmp_path: Path) -> None:
    assert is_usable(tmp_path, LEFT, free=0)
    assert not is_usable(tmp_path, LEFT - 1, free=0)
    assert not is_usable(tmp_path, LEFT, free=1 << 62)
    assert not is_usable(tmp_path / "absent", LEFT, free=0)


def test_a_place_where_no_program_runs_is_not_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statvfs = os.statvfs(tmp_path)
    changed = os.statvfs_result((*statvfs[:8], statvfs.f_flag | os.ST_NOEXEC, statvfs[9]))
    monkeypatch.setattr(os, "statvfs", lambda place: changed)
    assert not is_usable(tmp_path, LEFT, free=0)
