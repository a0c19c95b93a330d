"""The imports of a script are read alike by any number of threads, and hostile ones are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.bundles import pack
from tpuctl.flows.runs.code.programs import find, header_of, lone
from tpuctl.flows.runs.code.project_imports import check_syntax, imported_names, local_modules
from tpuctl.job_header import Header

AT_ONCE = """
import gc
import sys
import threading
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.code.project_imports import imported_names

sys.setswitchinterval(1e-6)
gc.set_threshold(50)
SOURCE = b"import os\\nif a:\\n  def f():\\n    return [g(b) for b in c]\\n" * 20
counts = []


class Garbage:
    def __del__(self):
        sum(range(2000))  # another thread goes on, in the middle of what has caused the collection


def read():
    for number in range(60):
        for _ in range(20):
            garbage = Garbage()
            garbage.own = garbage
        counts.append(len(list(imported_names(SOURCE + b"#%d of %d" % (number, threading.get_ident())))))


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


@pytest.mark.parametrize(
    "source",
    [
        b"import os\n# " + b"x" * (1 << 20),
        b"# coding: punycode\nimport os\n",
        b"#\n# coding=idna\nimport os\n",
    ],
    ids=["long", "punycode", "idna"],
)
def test_what_takes_too_much_to_be_parsed_imports_nothing_and_it_is_said(
    source: bytes, tmp_path: Path
) -> None:
    """A syntax tree takes hundreds of times the memory, these encodings a time like the square."""
    assert list(imported_names(source)) == []
    (tmp_path / "job.py").write_bytes(source)
    (note,) = check_syntax([tmp_path / "job.py"], Header())
    assert note.endswith("What it imports is not looked for: pass it with --include.")


@pytest.mark.parametrize("name", ["a" * 300, "a." * 300 + "b"])
def test_a_name_that_no_file_can_have_is_no_module(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "job.py").write_text(f"import {name}\n")
    assert local_modules(tmp_path / "job.py") == []


def test_modules_behind_a_link_out_of_the_folder_are_refused_before_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more/a.py").write_text("")
    (tmp_path / "more/unread.py").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "more/pipe.py")
    (tmp_path / "project/more").symlink_to(tmp_path / "more")
    script = tmp_path / "project/job.py"
    script.write_text("import more.a\n")
    with pytest.raises(UsageError, match=r"is a symbolic link to .*, which is outside the script's folder"):
        pack(lone(script))


def test_a_file_without_an_end_is_refused_and_not_held(tmp_path: Path) -> None:
    """A file may have a hole of gigabytes in it, which takes no room of the disk."""
    (tmp_path / "job.py").write_text("import table\n")
    for name in ("table.py", "pyproject.toml"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"The largest: table\.py"):
        pack(lone(tmp_path / "job.py"))
    with pytest.raises(UsageError, match=r"pyproject\.toml is larger than 16 MiB"):
        header_of(find(tmp_path / "job.py", "", tmp_path, tmp_path))
