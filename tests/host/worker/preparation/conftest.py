"""Each test ends what its process holds, as the end of a run does."""

from __future__ import annotations

from collections.abc import Iterator

import packaging.requirements  # noqa: F401  before tests take it from sys.path
import pytest

from tpuctl.host.worker.preparation import packages


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    yield
    release()


def release() -> None:
    """Close the locks of the folders of packages that this process uses."""
    while packages._held:
        packages._held.pop().close()
