"""The program that somebody else compares results with, run as they run it."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from hashlib import md5
from pathlib import Path

import pytest

from tpuctl.flows.runs.record import compare
from tpuctl.object_content import Content

DATA = bytes(range(256)) * 5


def entry(name: str, data: bytes = DATA, *, has_md5: bool = True) -> dict[str, object]:
    digest = b64encode(md5(data).digest()).decode() if has_md5 else ""
    return {"name": name, "bytes": len(data), "crc32c": Content.of(data).crc32c, "md5": digest}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    files = [entry("outputs/a"), entry("outputs/b", has_md5=False)]
    (tmp_path / "record").mkdir()
    (tmp_path / "record/results.json").write_text(json.dumps({"listed_files": files, "left_out": 0}))
    (tmp_path / "compare.py").write_bytes(Path(compare.__file__).read_bytes())
    (tmp_path / "results/outputs").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / "results/outputs" / name).write_bytes(DATA)
    return tmp_path


def run(archive: Path) -> tuple[int, list[str]]:
    command = [sys.executable, "-I", "-S", "compare.py"]
    result = subprocess.run(command, cwd=archive, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


def test_the_same_bytes(archive: Path) -> None:
    assert run(archive) == (
        0, ["same       outputs/a", "same       outputs/b", "2 of 2 files are the same, byte for byte."]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(
    ("data", "state"), [(DATA[:-1] + b"x", "different"), (b"", "different"), (None, "missing")]
)
def test_other_bytes(archive: Path, name: str, data: bytes | None, state: str) -> None:
    path = archive / "results/outputs" / name
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    code, lines = run(archive)
    assert code == 1
    assert f"{state:<10} outputs/{name}" in lines
    assert "1 of 2 files are the same, byte for byte." in lines


def test_results_elsewhere_can_be_compared(archive: Path) -> None:
    (archive / "results").rename(archive / "mine")
    command = [sys.executable, "-I", "-S", "compare.py", "mine"]
    result = subprocess.run(command, cwd=archive, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (
        0, "2 of 2 files are the same, byte for byte."
    )  # fmt: skip
    assert run(archive)[0] == 1


def test_what_the_record_leaves_out_is_counted_and_names_are_printable(archive: Path) -> None:
    files = [entry("outputs/\x1b[31mü"), entry("outputs")]
    (archive / "record/results.json").write_text(json.dumps({"listed_files": files, "left_out": 7}))
    (archive / "results/outputs/\x1b[31mü").write_bytes(DATA)
    assert run(archive) == (
        1,
        [
            r"same       outputs/\x1b[31m\xfc", "missing    outputs",
            "1 of 2 files are the same, byte for byte.",
            "7 more files of the run are not listed in its record.",
        ],
    )  # fmt: skip
