"""A source to upload."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.source_trees import write_image


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of four pictures each."""
    root = tmp_path / "pictures"
    for number, name in enumerate(("cat", "dog")):
        for index in range(4):
            write_image(root / name / f"{index}.png", shade=10 * number + index)
    return root
