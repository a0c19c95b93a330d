"""A source to upload, and waits that take no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.source_trees import write_image
from tests.flows.passing_time import PassingTime
from tpuctl.polling import poll, retry, time_left


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of four pictures each."""
    root = tmp_path / "pictures"
    for number, name in enumerate(("cat", "dog")):
        for index in range(4):
            write_image(root / name / f"{index}.png", shade=10 * number + index)
    return root


@pytest.fixture
def passing_time() -> Iterator[PassingTime]:
    """Every wait of `tpuctl.polling` takes no time, and this clock says how long it would have taken."""
    time = PassingTime()
    with pytest.MonkeyPatch.context() as patch:  # of its own: what a test's world has put in place comes back
        for function in (poll, retry):
            patch.setitem(function.__kwdefaults__, "sleep", time.sleep)
        for function in (poll, retry, time_left):
            patch.setitem(function.__kwdefaults__, "clock", time.clock)
        yield time
