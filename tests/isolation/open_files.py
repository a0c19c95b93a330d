"""A fixture for conftest files: a test that leaves a file open fails, and so do objects that it is given.

Python warns of a file object that nobody has closed, but not of a plain descriptor: a command that opens one
for each file of a dataset would run out of them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

DESCRIPTORS = "/proc/self/fd"


@pytest.fixture(autouse=True)
def no_file_is_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Look after the teardown of the test's own fixtures, and once nothing refers to their objects."""
    if not os.path.isdir(DESCRIPTORS):  # macOS lists no descriptors there
        yield
        return
    before = set(os.listdir(DESCRIPTORS))
    yield
    request.node.funcargs.clear()
    if files_but(before):
        gc.collect()
    left = files_but(before)
    assert left == [], f"it left files open: {left}"


def files_but(before: set[str]) -> list[str]:
    """Return the files that are open and were not before; pipes and sockets have no path."""
    targets = list[str]()
    for number in set(os.listdir(DESCRIPTORS)) - before:
        try:
            targets.append(os.readlink(f"{DESCRIPTORS}/{number}"))
        except FileNotFoundError:  # that of the listing itself
            pass
    return [target for target in targets if target.startswith("/") and target != os.devnull]
