"""A full disk of a simulated host, as a Python program there meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, pathlib, sys
from tpuctl.sim.guest import _tpuctl_disk
folder = pathlib.Path(sys.argv[1])
_tpuctl_disk.install(str(folder))
mark = folder / "disk_full"
def refused(act):
    try:
        act()
    except OSError as error:
        return error.strerror == os.strerror(28)
    return False
def state(name):
    home = folder / "home"
    return [refused(act) for act in (
        (home / name).touch, (home / "old").read_bytes, lambda: (home / "old").write_bytes(b""),
        lambda: (home / "old").open("ab").close(), lambda: (home / (name + "s")).mkdir(),
        (folder / "elsewhere").touch, lambda: open(1, "wb", closefd=False).close(),
    )]
print(state("free"))
(folder / "disk_full").touch()
print(state("full"))
mark.unlink()
print(state("again"))
"""


def test_what_grows_a_file_is_refused_while_the_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/old").write_text("old")
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    free, full, again = lines
    assert "True" not in free + again, lines
    assert full == "[True, False, True, True, True, False, False]"
