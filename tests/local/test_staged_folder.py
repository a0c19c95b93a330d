"""A folder that is filled by several threads: what ends its block is what the caller gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tpuctl.local.staged_folder import STAGING, StagedFolder


def test_ctrl_c_stays_one_where_a_thread_deletes_its_file_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def delete_after_another(path: Any, **options: Any) -> None:
        unlink(path, **options)
        raise FileNotFoundError(2, "No such file or directory")

    def fill() -> None:
        with StagedFolder(tmp_path / "r1") as folder:
            (folder.path / STAGING / "0").touch()
            monkeypatch.setattr(os, "unlink", delete_after_another)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()


def test_what_no_command_has_written_into_the_journal_is_left_out(tmp_path: Path) -> None:
    with StagedFolder(tmp_path / "out") as folder:
        lines = ["[" * 100_000, '["a"]', '["..", "b"]', "[1]", '["half']
        (tmp_path / "out" / STAGING / "placed").write_text("\n".join(lines))
        assert folder.placed_before() == {("a",)}
