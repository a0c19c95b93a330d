from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.data.source_trees import no_progress
from tpuctl.data.options import Options
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tree: LocalTree, folder: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(LocalTree, "scan", refuse)
    with pytest.raises(UsageError, match=f"Cannot read '{tmp_path}': Permission denied"):
        open_source(tmp_path, None, Options(), no_progress)
