"""What is packed with a script: its files, by its imports, unless its syntax has an error."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.bundles import pack
from tpuctl.flows.runs.code.programs import find, header_of, lone
from tpuctl.flows.runs.code.project_imports import check_syntax, imported_names, local_modules
from tpuctl.job_header import Header

FILES = {
    "job.py": "import os, models\nfrom training.steps import run\nimport training.speed as speed\n",
    "models.py": "def build():\n    import layers\n",
    "layers.py": "import job, models\n",
    "training/__init__.py": "",
    "training/steps.py": "from . import speed\nimport shapes\n",
    "training/speed.py": "",
    "training/__pycache__/steps.cpython-311.pyc": "",
    "shapes.py": "",
    "other.py": "import training\n",
    "data/train.py": "",
    "steps.py": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def names(bundle: bundles.Bundle) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        return archive.getnames()


def test_the_modules_in_a_scripts_folder_are_packed_with_all_that_they_import(folder: Path) -> None:
    assert names(bundles.pack(lone(folder / "job.py"))) == [
        "job.py",
        "layers.py",
        "models.py",
        "shapes.py",
        "training/__init__.py",
        "training/speed.py",
        "training/steps.py",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import data\n",  # a folder without __init__.py is no package
        "import numpy, sys\n",
        "from . import models\n",  # a script has no package
        "# import models\n'import models'\n",
        "import models from\n",  # no Python, or that of another version
    ],
    ids=["a folder", "elsewhere", "relative", "not code", "not parsed"],
)
def test_nothing_else_is_packed(folder: Path, text: str) -> None:
    (folder / "job.py").write_text(text)
    assert names(bundles.pack(lone(folder / "job.py"))) == ["job.py"]


@pytest.mark.parametrize(
    "text", ["import plain.deep.tool\n", "from plain import x\n", "from plain.deep.tool import f\n"]
)
def test_a_package_without_an_init_file_is_packed_where_a_module_of_it_is_imported(
    folder: Path, text: str
) -> None:
    for name in ("plain/x.py", "plain/deep/tool.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("import shapes\n")
    (folder / "job.py").write_text(text)
    assert names(bundles.pack(lone(folder / "job.py"))) == [
        "job.py",
        "plain/deep/tool.py",
        "plain/x.py",
        "shapes.py",
    ]


def test_a_folder_that_an_installed_package_wrote_is_not_packed(folder: Path) -> None:
    (folder / "wandb/run-1").mkdir(parents=True)
    (folder / "wandb/run-1/code.py").write_text("")
    (folder / "job.py").write_text("import wandb\nfrom wandb.sdk import init\nfrom wandb import log\n")
    assert names(bundles.pack(lone(folder / "job.py"))) == ["job.py"]


def test_the_same_files_give_the_same_bundle_and_a_changed_module_another(folder: Path) -> None:
    first, second = (bundles.pack(lone(folder / "job.py")) for _ in range(2))
    assert (first.data, first.sha256) == (second.data, second.sha256)
    (folder / "shapes.py").write_text("SIZE = 3\n")
    assert bundles.pack(lone(folder / "job.py")).sha256 != first.sha256


def test_the_progress_of_much_code_is_reported_also_within_a_file_and_that_of_little_is_not(
    folder: Path,
) -> None:
    reports: list[tuple[str, int, int]] = []
    bundles.pack(lone(folder / "job.py"), report=lambda *report: reports.append(report))
    assert reports == []
    (folder / "large").write_bytes(bytes(12_000_000))
    bundles.pack(lone(folder / "job.py"), [folder / "large"], report=lambda *report: reports.append(report))
    assert reports == [("MB of code packed", number, 12) for number in range(1, 13)]


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


@pytest.mark.daily
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


NEXT = f">={sys.version_info.major}.{sys.version_info.minor + 1}"
THIS = f">={sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text("import os\nprint('so far'\n")
    return path


@pytest.mark.parametrize("requires", ["", THIS, ">=3.8"])
def test_the_line_of_an_error_is_shown(script: Path, requires: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_syntax([script], Header(requires))
    expected = f"{script} has a syntax error, line 2: '(' was never closed: print('so far'."
    assert refused.value.message == expected
    assert refused.value.facts == {"file": str(script), "line": 2}


@pytest.mark.parametrize("requires", [NEXT, "<3.0"])
def test_a_script_for_another_python_is_not_refused_and_it_is_said(script: Path, requires: str) -> None:
    (note,) = check_syntax([script], Header(requires))
    assert note.startswith(f"{script} has a syntax error, line 2: ")
    assert f"The run is submitted anyway: it asks for Python {requires}, and this is 3." in note


@pytest.mark.parametrize(
    "content",
    [
        b"print('a')\n", b"", b"# -*- coding: latin-1 -*-\nname = '\xe9'\n", b"\xef\xbb\xbfprint(1)\r\n",
        b"print('\\d')\n", b"async def main():\n    await main()\n",
    ],
    ids=["plain", "empty", "latin-1", "byte order mark", "warning", "coroutine"],
)  # fmt: skip
def test_what_python_accepts_is_accepted_without_a_word(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(content)
    assert check_syntax([path], Header()) == []


@pytest.mark.parametrize("content", [b"a = '\x00'\n", b"name = '\xe9'\n", b"return 1\n", b"\tx\n y\n"])
def test_whatever_python_refuses_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="has a syntax error"):
        check_syntax([path], Header())


@pytest.mark.parametrize(
    "content", ["-" * 200_000 + "1", "a" + ".b" * 100_000, "x = " + "+".join("1" * 100_000)]
)
def test_a_file_that_is_nested_too_deep_is_no_bug(tmp_path: Path, content: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(content)
    (note,) = check_syntax([path], Header())
    assert note == f"{path} is nested too deep to be checked for syntax errors."


def test_the_hint_says_that_nothing_was_sent_and_which_python_this_is(script: Path) -> None:
    with pytest.raises(UsageError) as refused:
        check_syntax([script], Header())
    assert refused.value.hint == (
        f"Nothing was sent. This is Python {platform.python_version()}; a script for a newer one says so in"
        ' its header, such as requires-python = ">=3.13".'
    )


def test_every_file_is_checked_and_each_note_is_kept(script: Path, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("-" * 200_000 + "1")
    notes = check_syntax([tmp_path / "deep.py", script], Header(NEXT))
    assert [note.split()[0] for note in notes] == [str(tmp_path / "deep.py"), str(script)]
