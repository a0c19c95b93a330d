"""A Python for hosts without a way out goes into the bucket, by its hash."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import UsageError
from tpuctl.flows.project import pythons


def archive(path: Path, **files: str) -> Path:
    """Write a tar.gz; `__` in a name stands for a slash."""
    with tarfile.open(path, "w:gz") as writer:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(text)
            writer.addfile(member, io.BytesIO(text.encode()))
    return path


HEADER = {"python__include__python3.12__patchlevel.h": '#define PY_MAJOR 3\n#define PY_VERSION   "3.12.8"\n'}


def test_it_is_uploaded_once_and_its_setting_is_shown(
    tpuctl: Callable[..., CommandResult], bucket: Bucket, tmp_path: Path
) -> None:
    file = archive(tmp_path / "python.tar.gz", **HEADER)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rehearsed = tpuctl("python", str(file), "--dry-run")
    assert f"pythons/{digest}.tar.gz" in rehearsed.out
    assert not list(bucket.objects("pythons/"))
    for words in ("is now in", "already was in"):
        result = tpuctl("python", str(file))
        assert result.out == f'python_archives = {{ "3.12.8" = "{digest}" }}\n'
        assert words in result.err
    assert bucket.read(f"pythons/{digest}.tar.gz") == file.read_bytes()


@pytest.mark.parametrize(
    ("files", "words"),
    [({"python__bin__python3": ""}, "holds no Python"), ({}, "holds no Python"), (None, "is no tar.gz")],
)
def test_what_is_no_python_is_refused(tmp_path: Path, files: dict[str, str] | None, words: str) -> None:
    path = tmp_path / "python.tar.gz"
    path.write_text("no archive") if files is None else archive(path, **files)
    with pytest.raises(UsageError, match=words), pythons.archive(str(path)):
        pass


def test_no_archive_fills_the_memory(tmp_path: Path) -> None:
    """tarfile takes a header of any length: a thousand bytes of it are one of the archive."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "python.tar.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(header.tobuf())
        for _ in range(16):
            stream.write(b"0" * (1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"is no tar\.gz"), pythons.archive(str(path)):
            pass
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_version_without_uv_names_where_a_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons.shutil, "which", lambda *_, **__: None)
    with pytest.raises(UsageError, match="no uv") as refused, pythons.archive("3.12"):
        pass
    assert "python-build-standalone/releases" in refused.value.hint
