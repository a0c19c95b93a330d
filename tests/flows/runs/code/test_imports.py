"""The imports of a script are read alike by any number of threads."""

from __future__ import annotations

import subprocess
import sys

AT_ONCE = """
import gc
import sys
import threading
from tpuctl.flows.runs.code.imports import import_statements

sys.setswitchinterval(1e-6)
gc.set_threshold(50)
SOURCE = b"import os\\nif a:\\n  def f():\\n    return [g(b) for b in c]\\n" * 20
counts = []


class Garbage:
    def __del__(self):
        sum(range(2000))  # another thread goes on, in the middle of what has caused the collection


def read():
    for _ in range(60):
        for _ in range(20):
            garbage = Garbage()
            garbage.own = garbage
        counts.append(len(list(import_statements(SOURCE))))


threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert counts == [20] * 240, len(counts)
"""


def test_threads_may_read_the_imports_of_scripts_at_once() -> None:
    """Python 3.11 counts the levels of all threads together, and raises SystemError where they differ."""
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
