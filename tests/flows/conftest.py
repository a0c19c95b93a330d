"""A bucket of a simulator in this process, and a source to upload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_trees import write_image

from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load


@pytest.fixture
def bucket(simulator: Any) -> Iterator[Bucket]:
    cloud = connect(load({}))
    yield cloud.bucket
    cloud.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of four pictures each."""
    root = tmp_path / "pictures"
    for number, name in enumerate(("cat", "dog")):
        for index in range(4):
            write_image(root / name / f"{index}.png", shade=10 * number + index)
    return root
