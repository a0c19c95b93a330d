"""Folders in which this user had terraform run are remembered, each once, for nobody else to read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tpuctl.errors import ConfigError
from tpuctl.flows.project.doctor import allow, is_allowed


def test_a_folder_is_remembered_by_its_place(home: Path, tmp_path: Path) -> None:
    for name in ("base", "base 2"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "base")
    assert not is_allowed(tmp_path / "base")
    allow(tmp_path / "link")
    allow(tmp_path / "base")
    assert is_allowed(tmp_path / "base")
    assert is_allowed(tmp_path / "link")
    assert not is_allowed(tmp_path / "base 2")
    assert not is_allowed(tmp_path)
    allow(tmp_path / "base 2")
    file = tmp_path / "state/terraform-folders"
    assert file.read_text() == f"{tmp_path}/base\n{tmp_path}/base 2\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_state_folder_that_cannot_be_is_named(home: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ConfigError, match="terraform-folders cannot be written"):
        allow(tmp_path)
    assert not is_allowed(tmp_path)


def test_a_garbled_file_allows_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/terraform-folders").write_bytes(os.fsencode(tmp_path) + b"\n\xff\n")
    assert not is_allowed(tmp_path)
