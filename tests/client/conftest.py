"""Fixtures: a client of the simulator, a job, a small source of records, and a look at the threads left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl import Client

SCRIPT = """
import os
import sys
print("step 1 loss 0.5", flush=True)
if "--wait" in sys.argv:
    sys.stdin.read()
    import threading
    threading.Event().wait()
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def client(simulator: RunningSimulator) -> Iterator[Client]:
    """A client of a fresh simulator."""
    with Client() as client:
        yield client


@pytest.fixture
def script(home: Path) -> Path:
    """A job that needs nothing: it prints a line, waits for ever with --wait, and ends with $CODE."""
    path = Path("train.py")
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def table(home: Path) -> Path:
    """A table of a few thousand rows."""
    path = Path("rows.csv")
    path.write_text("x,y\n" + "".join(f"{row},{row % 7}\n" for row in range(4000)))
    return path


@pytest.fixture
def no_thread_is_left(client: Client) -> Iterator[None]:
    """Fail if a thread of a fanout or of a conversion goes on after the test's calls."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(("fanout", "shard", "worker ")):
            thread.join(60)
            assert not thread.is_alive(), thread.name
