"""Fixtures of the dataset tests, and a look at the files that are left open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.source_trees import Tree, close_opened, write_image
from tests.isolation.open_files import no_file_is_left_open as no_file_is_left_open


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Make `{folder: number of images}` below a fresh folder, and return that."""

    def make(folders: dict[str, int], suffix: str = ".png") -> Path:
        root = tmp_path / "pictures"
        for number, (folder, count) in enumerate(folders.items()):
            for index in range(count):
                write_image(root / folder / f"{index}{suffix}", shade=100 * number + index)
        return root

    return make


@pytest.fixture(autouse=True)
def _closed(no_file_is_left_open: None) -> Iterator[None]:
    """Close what the test has opened."""
    yield
    close_opened()
