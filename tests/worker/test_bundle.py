"""Only the submitted code is unpacked, and only into its folder."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from tests.worker.host import tar
from tpuctl.cloud.storage import Bucket
from tpuctl.worker import bundle, gcs


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def fetch(
    worker_bucket: gcs.Bucket, bucket: Bucket, data: bytes, folder: Path, sha256: str | None = None
) -> None:
    bucket.create("bundles/x.tar.gz", data)
    bundle.fetch(worker_bucket, "bundles/x.tar.gz", sha256 or hashlib.sha256(data).hexdigest(), str(folder))


def test_files_are_unpacked_with_their_folders(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    data = tar(("job.py", b"print()"), (member("deep", tarfile.DIRTYPE), b""), ("deep/er/x.py", b"X = 1"))
    fetch(worker_bucket, bucket, data, tmp_path / "code")
    assert (tmp_path / "code/job.py").read_bytes() == b"print()"
    assert (tmp_path / "code/deep/er/x.py").read_bytes() == b"X = 1"


def test_another_hash_is_refused_before_anything_is_unpacked(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    with pytest.raises(bundle.BundleError, match=r"gs://sim-project-tpuctl/bundles/x\.tar\.gz has the hash"):
        fetch(worker_bucket, bucket, tar(("job.py", b"")), tmp_path / "code", "0" * 64)
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize(
    "evil",
    [
        member("../outside", tarfile.REGTYPE),
        member("a/../../outside", tarfile.REGTYPE),
        member("/tmp/outside", tarfile.REGTYPE),
        member("../code-of-another/x", tarfile.REGTYPE),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "job.py"),
        member("link", tarfile.LNKTYPE, "job.py"),
        member("pipe", tarfile.FIFOTYPE),
        member("device", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} type {info.type.decode()}",
)
def test_a_member_that_is_no_plain_file_inside_is_refused_and_nothing_unpacked(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, evil: tarfile.TarInfo
) -> None:
    with pytest.raises(bundle.BundleError, match="not a plain file inside it"):
        fetch(worker_bucket, bucket, tar(("job.py", b"print()"), (evil, b"")), tmp_path / "code")
    assert sorted(tmp_path.rglob("*outside*")) == []
    assert not (tmp_path / "code").exists()
