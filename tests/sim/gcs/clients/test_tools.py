"""gcloud storage, gsutil and rclone as installed, unmodified; skipped where they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs, proxy_to

pytestmark = pytest.mark.slow

MIB = 1 << 20

Tool = Callable[..., str]


def tool(program: str, *options: str, folder: Path, environment: dict[str, str]) -> Tool:
    """Return a function that runs one command of a program in a folder and returns its output."""

    def run(*arguments: str) -> str:
        process = subprocess.run(
            [program, *options, *arguments],
            env={**os.environ, **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with small files in it, and a larger one."""
    folder = tmp_path / "files"
    (folder / "data" / "sub").mkdir(parents=True)
    (folder / "data" / "one").write_text("1\n")
    (folder / "data" / "sub" / "two").write_text("2\n")
    (folder / "big").write_bytes(os.urandom(9 * MIB))
    return folder


@pytest.fixture
def gcloud(gcs: RunningGcs, tmp_path: Path, files: Path) -> Tool:
    program = shutil.which("gcloud")
    if program is None:
        pytest.skip("gcloud is not installed here")
    environment = {
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{gcs.url}/storage/v1/",
        "CLOUDSDK_CORE_PROJECT": PROJECT,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
        "CLOUDSDK_STORAGE_PROCESS_COUNT": "1",
    }
    return tool(program, "storage", folder=files, environment=environment)


@pytest.fixture
def gsutil(gcs: RunningGcs, tmp_path: Path, files: Path) -> Iterator[Tool]:
    program = shutil.which("gsutil")
    if program is None:
        pytest.skip("gsutil is not installed here")
    with proxy_to(gcs, tmp_path / "ca") as (url, ca_file):
        boto = tmp_path / "boto"
        boto.write_text(
            f"[Boto]\nproxy = 127.0.0.1\nproxy_port = {url.rpartition(':')[2]}\n"
            f"[GSUtil]\nstate_dir = {tmp_path / 'gsutil'}\ndefault_project_id = {PROJECT}\n"
            "software_update_check_period = 0\nparallel_process_count = 1\n"
        )
        environment = {
            "BOTO_CONFIG": str(boto),
            "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
            "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "false",
            "no_proxy": "",
        }
        trust = f"Boto:ca_certificates_file={ca_file}"
        yield tool(program, "-o", trust, folder=files, environment=environment)


@pytest.fixture
def rclone(gcs: RunningGcs, tmp_path: Path, files: Path) -> Tool:
    program = shutil.which("rclone")
    if program is None:
        pytest.skip("rclone is not installed here")
    environment = {
        "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
        "RCLONE_GCS_ENDPOINT": f"{gcs.url}/storage/v1/",
        "RCLONE_GCS_ANONYMOUS": "true",
        "RCLONE_GCS_BUCKET_POLICY_ONLY": "true",
    }
    return tool(program, folder=files, environment=environment)


def names(bucket: storage.Bucket) -> list[str]:
    return [blob.name for blob in bucket.list_blobs()]


def test_gcloud_copies_up_and_prints(gcloud: Tool, bucket: storage.Bucket, files: Path) -> None:
    gcloud("cp", "-r", "data", "big", f"gs://{BUCKET}/")
    assert names(bucket) == ["big", "data/one", "data/sub/two"]
    assert bucket.blob("big").download_as_bytes() == (files / "big").read_bytes()
    assert gcloud("cat", f"gs://{BUCKET}/data/*") == "1\n"


def test_gcloud_does_the_rest(gcloud: Tool, bucket: storage.Bucket, files: Path) -> None:
    gcloud("buckets", "create", "gs://acme-made", "--location=europe-west4", "--soft-delete-duration=0")
    gcloud("buckets", "update", "gs://acme-made", "--versioning", "--update-labels=team=vision")
    assert "team: vision" in gcloud("buckets", "describe", "gs://acme-made")
    gcloud("cp", "big", f"gs://{BUCKET}/big")
    gcloud("cp", f"gs://{BUCKET}/big", "down")
    assert (files / "down").read_bytes() == (files / "big").read_bytes()
    gcloud("rsync", "-r", "data", f"gs://{BUCKET}/sync")
    (files / "data" / "one").unlink()
    (files / "data" / "sub" / "two").write_text("changed\n")
    gcloud("rsync", "-r", "--delete-unmatched-destination-objects", "data", f"gs://{BUCKET}/sync")
    assert names(bucket) == ["big", "sync/sub/two"]
    assert gcloud("cat", f"gs://{BUCKET}/sync/**") == "changed\n"
    assert f"gs://{BUCKET}/sync/sub/two" in gcloud("ls", "-l", "-r", f"gs://{BUCKET}/**")
    gcloud("cp", "-r", f"gs://{BUCKET}/sync", "gs://acme-made/")
    gcloud("objects", "compose", f"gs://{BUCKET}/sync/sub/two", f"gs://{BUCKET}/big", f"gs://{BUCKET}/both")
    assert bucket.blob("both").download_as_bytes() == b"changed\n" + (files / "big").read_bytes()
    gcloud("mv", f"gs://{BUCKET}/both", f"gs://{BUCKET}/moved")
    gcloud("objects", "update", f"gs://{BUCKET}/moved", "--custom-metadata=color=red", "--temporary-hold")
    assert bucket.get_blob("moved").metadata["color"] == "red"
    gcloud("objects", "update", f"gs://{BUCKET}/moved", "--no-temporary-hold")
    gcloud("rm", "-r", "gs://acme-made", f"gs://{BUCKET}/**")
    assert [listed.name for listed in bucket.client.list_buckets()] == [BUCKET]
    assert names(bucket) == []


def test_gcloud_copies_nothing_that_it_has_copied(gcloud: Tool, bucket: storage.Bucket, files: Path) -> None:
    """`rsync` compares the times that it asks for as several fields of an object's metadata."""
    os.utime(files / "data" / "one", (1_600_000_000, 1_600_000_000))
    os.utime(files / "data" / "sub" / "two", (1_600_000_001, 1_600_000_001))
    sync = ("rsync", "-r", "data", f"gs://{BUCKET}/sync")
    generations = []
    for _ in range(2):
        gcloud(*sync)
        generations.append([blob.generation for blob in bucket.list_blobs()])
    assert generations[0] == generations[1]
    gcloud("rsync", "-r", "--preserve-posix", f"gs://{BUCKET}/sync", "down")
    assert (files / "down" / "one").stat().st_mtime == 1_600_000_000


def test_gsutil(gsutil: Tool, bucket: storage.Bucket, files: Path) -> None:
    gsutil("cp", "-r", "data", "big", f"gs://{BUCKET}/")
    assert names(bucket) == ["big", "data/one", "data/sub/two"]
    assert gsutil("cat", f"gs://{BUCKET}/data/one") == "1\n"
    gsutil("-m", "rsync", "-r", "data", f"gs://{BUCKET}/sync")
    assert f"gs://{BUCKET}/sync/sub/two" in gsutil("ls", "-r", f"gs://{BUCKET}/")
    gsutil("compose", f"gs://{BUCKET}/data/one", f"gs://{BUCKET}/big", f"gs://{BUCKET}/both")
    gsutil("cp", f"gs://{BUCKET}/both", "down")
    assert (files / "down").read_bytes() == b"1\n" + (files / "big").read_bytes()
    gsutil("-m", "rm", "-r", f"gs://{BUCKET}/**")
    assert names(bucket) == []


def test_rclone(rclone: Tool, bucket: storage.Bucket, files: Path) -> None:
    remote = f":gcs:{BUCKET}"
    (files / "big").write_bytes(os.urandom(17 * MIB))  # in chunks
    rclone("copy", ".", remote)
    assert names(bucket) == ["big", "data/one", "data/sub/two"]
    rclone("check", ".", remote)
    generations = {blob.name: blob.generation for blob in bucket.list_blobs()}
    rclone("copy", ".", remote)
    assert {blob.name: blob.generation for blob in bucket.list_blobs()} == generations
    rclone("moveto", f"{remote}/data/one", f"{remote}/moved")
    rclone("touch", "-t", "2021-02-03T04:05:06", f"{remote}/moved")
    rclone("sync", remote, "down")
    assert (files / "down" / "big").read_bytes() == (files / "big").read_bytes()
    assert (files / "down" / "moved").stat().st_mtime == 1_612_325_106
    rclone("delete", remote)
    assert names(bucket) == []
