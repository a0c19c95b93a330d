"""A script gets the Python that it asks for: of the image, of the bucket, or of uv, checked and kept."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC
from tests.host.worker.preparation.conftest import release
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs
from tpuctl.host.worker.preparation import installers, interpreters
from tpuctl.host.worker.preparation.interpreters import PythonError
from tpuctl.host.worker.records import OWN, Spec, python_archive

THIS = platform.python_version()
SYSCONFIG = f"lib/python{THIS.rpartition('.')[0]}/_sysconfigdata__linux_x86_64-linux-gnu.py"
CONFIGURATION = "# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"
"""uv corrects the paths in it."""
OLD = sys.version.replace(THIS, "3.7.1", 1)


def archive(program: str = f'exec {sys.executable} "$@"', name: str = "python") -> bytes:
    """An archive with one folder, as python-build-standalone makes them; its Python is that of the tests."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as writer:
        for path, text in {"bin/python3": f"#!/bin/sh\n{program}\n", SYSCONFIG: CONFIGURATION}.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size, member.mode = len(text), 0o755
            writer.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An attempt's folder on a host whose Python is too old."""
    monkeypatch.setattr(sys, "version", OLD)
    folder = tmp_path / ".tpuctl/runs/r1/1"
    folder.mkdir(parents=True)
    return folder


def ensure(spec: Spec, attempt: Path, bucket: object = None) -> str:
    return interpreters.ensure(bucket, spec, str(attempt), str(attempt / "log"))  # type: ignore[arg-type]


def kept(attempt: Path) -> list[str]:
    """The complete folders, and what a build has left."""
    root = attempt.parents[2] / "pythons"
    return [path.name for path in root.iterdir() if path.suffix != ".lock"] if root.exists() else []


@pytest.mark.parametrize(
    ("python", "requires"), [("", ""), ("", ">=3.8"), (THIS, ""), (THIS[:4], f"=={THIS}")]
)
def test_the_images_own_where_it_fits(tmp_path: Path, python: str, requires: str) -> None:
    spec = replace(SPEC, python=python, requires_python=requires)
    assert ensure(spec, tmp_path / "a/b/c") == ""


class TestOfTheBucket:
    def spec(self, data: bytes, version: str = THIS, **changes: object) -> Spec:
        archives = {version: hashlib.sha256(data).hexdigest()}
        return replace(SPEC, **{"requires_python": ">=3.8", "python_archives": archives, **changes})

    def put(self, bucket: Bucket, data: bytes, sha256: str = "") -> None:
        bucket.create(python_archive(sha256 or hashlib.sha256(data).hexdigest()), data, "application/gzip")

    def test_it_is_installed_once_and_starts_scripts(
        self, attempt: Path, bucket: Bucket, worker_bucket: gcs.Bucket
    ) -> None:
        data = archive()
        self.put(bucket, data)
        spec = self.spec(data)
        python = ensure(spec, attempt, worker_bucket)
        assert subprocess.check_output([python, "-c", "print(7)"]) == b"7\n"
        for item in bucket.objects("pythons/"):
            bucket.remove(item)
        assert ensure(spec, attempt, worker_bucket) == python
        assert (attempt / "log").read_text() == (
            f"[tpuctl] installing Python {THIS} from gs://{bucket.name}/{python_archive(spec.python_archives[THIS])}\n"
            f"[tpuctl] Python {THIS} of an earlier run is used\n"
        )
        own = interpreters.environment(python, spec, str(attempt))
        code = "import sys, importlib.util; print(sys.prefix, importlib.util.find_spec('msgspec'))"
        assert subprocess.check_output([own, "-c", code], text=True) == f"{attempt}/environment None\n"

    def test_other_bytes_are_not_unpacked(
        self, attempt: Path, bucket: Bucket, worker_bucket: gcs.Bucket
    ) -> None:
        data = archive()
        self.put(bucket, archive("echo taken over"), hashlib.sha256(data).hexdigest())
        with pytest.raises(PythonError, match="has the hash"):
            ensure(self.spec(data), attempt, worker_bucket)
        assert kept(attempt) == []

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"no archive", "could not be unpacked"),
            (archive(name="python/deeper"), "it holds no bin/python3"),
            (archive("exit 3"), "it is Python that does not start"),
            (archive("echo 3.6.1"), r"it is Python 3\.6\.1"),
        ],
    )
    def test_what_is_no_such_python_is_an_error(
        self, attempt: Path, bucket: Bucket, worker_bucket: gcs.Bucket, data: bytes, words: str
    ) -> None:
        self.put(bucket, data)
        with pytest.raises(PythonError, match=words):
            ensure(self.spec(data), attempt, worker_bucket)

    def test_a_killed_installation_leaves_nothing_that_is_used(
        self, attempt: Path, bucket: Bucket, worker_bucket: gcs.Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = archive()
        self.put(bucket, data)
        spec = self.spec(data)
        with monkeypatch.context() as patch:
            patch.setattr(interpreters, "_take", lambda place, folder: os.kill(os.getpid(), 9))
            process = os.fork()
            if process == 0:
                ensure(spec, attempt, worker_bucket)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -9
        assert [name for name in kept(attempt) if ".new-" in name] == kept(attempt) != []
        assert ensure(spec, attempt, worker_bucket)
        assert kept(attempt) == [spec.python_archives[THIS][:32]]


class TestOfUv:
    """uv checks an archive of a mirror, as it checks those of GitHub; there is none of them here."""

    @pytest.fixture
    def mirror(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        if not installers.find_uv():
            pytest.skip("uv is not installed here")
        folder = tmp_path / "mirror"
        folder.mkdir()
        serve = partial(SimpleHTTPRequestHandler, directory=str(folder))
        with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}"
            data = archive()
            (folder / "python.tar.gz").write_bytes(data)
            major, minor, patch = (int(part) for part in THIS.split("."))
            row = {
                "name": "cpython", "major": major, "minor": minor, "patch": patch, "prerelease": "",
                "arch": {"family": platform.machine(), "variant": None}, "os": "linux", "libc": "gnu",
                "url": f"{address}/python.tar.gz", "sha256": hashlib.sha256(data).hexdigest(),
                "variant": None, "build": "20260101",
            }  # fmt: skip
            (folder / "downloads.json").write_text(json.dumps({"this": row}))
            monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(folder / "downloads.json"))
            monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
            yield folder
            server.shutdown()

    def test_it_is_installed_once(self, attempt: Path, mirror: Path) -> None:
        spec = replace(SPEC, python=THIS)
        python = ensure(spec, attempt)
        assert subprocess.check_output([python, "-c", "print(7)"]) == b"7\n"
        shutil.rmtree(mirror)
        assert ensure(spec, attempt) == python

    def test_one_with_another_hash_is_no_python(self, attempt: Path, mirror: Path) -> None:
        (mirror / "python.tar.gz").write_bytes(archive("echo taken over"))
        with pytest.raises(PythonError, match=r"uv could not get it .* tpuctl python 3"):
            ensure(replace(SPEC, python=THIS), attempt)
        assert kept(attempt) == []

    def test_without_uv_the_images_pip_gets_the_pinned_one(
        self, attempt: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commands = []

        def call(command: list[str], *_: object) -> int:
            commands.append(command)
            return 1

        monkeypatch.setattr(installers, "find_uv", tuple)
        monkeypatch.setattr(installers, "call", call)
        with pytest.raises(PythonError, match="pip could not install uv"):
            ensure(replace(SPEC, python="3.12"), attempt)
        (command,) = commands
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        assert command[-1] == interpreters.UV


@pytest.mark.parametrize(
    ("python", "requires", "asked"),
    [
        ("3.13", "", "3.13"), ("", ">=3.10", "3.12"), ("", ">=3.13", "3.13"), ("", "<3.12", "3.11"),
        ("", "==3.10.*", "3.10"), ("", "==3.12.4", "==3.12.4"), ("", ">=3.99", ">=3.99"),
    ],
)  # fmt: skip
def test_what_uv_is_asked_for(python: str, requires: str, asked: str) -> None:
    assert interpreters.request_of(python, requires) == asked


def test_an_environment_without_the_images_packages_for_those_who_have_their_own(tmp_path: Path) -> None:
    assert interpreters.environment("", SPEC, str(tmp_path)) == ""
    own = interpreters.environment("", replace(SPEC, packages=OWN), str(tmp_path))
    assert subprocess.call([own, "-c", "import msgspec"], stderr=subprocess.DEVNULL) == 1
    assert not list(tmp_path.glob("environment/bin/pip*"))
    release()
