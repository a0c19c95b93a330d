"""Other libraries, unmodified: gcsfs, tensorstore, and TensorFlow's own gs:// through the proxy.

Many files and large ones through google-cloud-storage's transfer manager: in slices, in parts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager

from tests.forks.tensorflow_python import python
from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs, proxy_to

MIB = 1 << 20


@pytest.fixture
def gcs_filesystem(gcs: RunningGcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
    monkeypatch.setenv(
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false"
    )  # asks a gRPC service first, for a minute
    import fsspec.asyn
    import gcsfs

    filesystem = gcsfs.GCSFileSystem(
        project=PROJECT,
        token="anon",
        endpoint_url=gcs.url,
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    yield filesystem
    session = filesystem._session
    if session is not None:
        fsspec.asyn.sync(filesystem.loop, session.close)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # gcsfs does, by aiohttp's client
def test_gcsfs(gcs_filesystem, tmp_path: Path) -> None:
    fs = gcs_filesystem
    big = os.urandom(6 * MIB + 3)
    with fs.open(f"{BUCKET}/dir/big", "wb", block_size=MIB) as file:
        file.write(big)
    fs.pipe(f"{BUCKET}/dir/small", b"small")
    fs.pipe(f"{BUCKET}/dir/sub/größe", b"\xff")
    with fs.open(f"{BUCKET}/dir/big", "rb", block_size=MIB) as file:
        file.seek(5 * MIB)
        assert file.read() == big[5 * MIB :]
    assert fs.cat(f"{BUCKET}/dir/big", start=100, end=200) == big[100:200]
    every = {
        f"{BUCKET}/dir/big": big,
        f"{BUCKET}/dir/small": b"small",
        f"{BUCKET}/dir/sub/größe": b"\xff",
    }
    assert fs.cat(list(every)) == every
    assert fs.ls(f"{BUCKET}/dir") == [f"{BUCKET}/dir/big", f"{BUCKET}/dir/small", f"{BUCKET}/dir/sub"]
    assert fs.find(f"{BUCKET}/dir/sub") == [f"{BUCKET}/dir/sub/größe"]
    assert fs.glob(f"{BUCKET}/**/b*") == [f"{BUCKET}/dir/big"]
    assert fs.info(f"{BUCKET}/dir/big")["size"] == len(big)
    assert fs.isdir(f"{BUCKET}/dir")
    assert not fs.exists(f"{BUCKET}/nothing")
    fs.merge(f"{BUCKET}/whole", [f"{BUCKET}/dir/small", f"{BUCKET}/dir/big"])
    assert fs.cat(f"{BUCKET}/whole") == b"small" + big
    fs.cp(f"{BUCKET}/dir/small", f"{BUCKET}/copy")
    fs.mv(f"{BUCKET}/copy", f"{BUCKET}/moved")
    fs.setxattrs(f"{BUCKET}/moved", color="red")
    assert fs.getxattr(f"{BUCKET}/moved", "color") == "red"
    fs.get(f"{BUCKET}/dir/big", str(tmp_path / "big"))
    assert (tmp_path / "big").read_bytes() == big
    fs.put(str(tmp_path / "big"), f"{BUCKET}/put")
    fs.rm(f"{BUCKET}/dir", recursive=True)  # goes as one batch
    assert fs.find(BUCKET) == [f"{BUCKET}/moved", f"{BUCKET}/put", f"{BUCKET}/whole"]
    with pytest.raises(FileNotFoundError):
        fs.cat(f"{BUCKET}/dir/big")


TENSORSTORE = """
import sys
import tensorstore as ts
spec = {"driver": "zarr3", "kvstore": {"driver": "gcs", "bucket": sys.argv[1], "path": "array/"}}
wanted = ts.open(spec, create=True, dtype=ts.int32, shape=[300, 200],
                 chunk_layout=ts.ChunkLayout(chunk_shape=[100, 100])).result()
wanted[...] = 7
wanted[5, 6] = 8
again = ts.open(spec).result()
assert (int(again[5, 6].read().result()), int(again[299, 199].read().result())) == (8, 7)
store = ts.KvStore.open({"driver": "gcs", "bucket": sys.argv[1], "path": "kv/"}).result()
stamp = store.write("a", b"1").result()
absent = store.read("nothing").result().stamp.generation
store.write("a", b"0", if_equal=absent).result()
assert store.read("a").result().value == b"1"
store.write("a", b"2", if_equal=stamp.generation).result()
assert store.read("a").result().value == b"2"
assert store.list().result() == [b"a"]
store.delete_range(ts.KvStore.KeyRange("a", "b")).result()
assert store.list().result() == []
"""


REMOVED = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HTTPS_PROXY",
    "STORAGE_EMULATOR_HOST",
    "http_proxy",
    "https_proxy",
)
"""Variables that would lead a program astray."""


def run(program: str, *arguments: str, environment: dict[str, str]) -> str:
    """Run a Python program in a process of its own and return what it prints."""
    own = {name: value for name, value in os.environ.items() if name not in REMOVED}
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**own, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return process.stdout


def test_tensorstore(gcs: RunningGcs, bucket: storage.Bucket, tmp_path: Path) -> None:
    environment = {
        "TENSORSTORE_GCS_HTTP_URL": gcs.url,
        "GCE_METADATA_ROOT": "127.0.0.1:9",
        "HOME": str(tmp_path),
    }
    run(TENSORSTORE, BUCKET, environment=environment)
    assert "array/zarr.json" in [blob.name for blob in bucket.list_blobs()]


ARRAY_RECORD = """
import sys
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
if len(sys.argv) == 3:
    writer = ArrayRecordWriter(sys.argv[2], "group_size:1")
    for number in range(5):
        writer.write(b"record %d" % number)
    writer.close()
else:
    assert ArrayRecordReader(sys.argv[1]).read([4]) == [b"record 4"]
"""


@pytest.mark.skipif(find_spec("array_record") is None, reason="array_record is not installed")
def test_array_record_reads_by_google_cloud_cpp(
    gcs: RunningGcs, bucket: storage.Bucket, tmp_path: Path
) -> None:
    run(ARRAY_RECORD, "write", str(tmp_path / "records"), environment={})
    bucket.blob("records").upload_from_filename(tmp_path / "records")
    run(ARRAY_RECORD, f"gs://{BUCKET}/records", environment={"CLOUD_STORAGE_EMULATOR_ENDPOINT": gcs.url})


GFILE = """
import os, sys
import tensorflow as tf
gfile, root = tf.io.gfile, f"gs://{sys.argv[1]}/tf"
gfile.makedirs(f"{root}/empty")
assert gfile.isdir(f"{root}/empty") and gfile.listdir(f"{root}/empty") == []
data = os.urandom(3 << 20)
with gfile.GFile(f"{root}/big", "wb") as file:
    file.write(data[: 1 << 20])
    file.flush()
    file.write(data[1 << 20 :])
with gfile.GFile(f"{root}/big", "rb") as file:
    file.seek(1000)
    assert file.read(5000) == data[1000:6000]
    file.seek(0)
    assert file.read() == data
assert gfile.stat(f"{root}/big").length == len(data)
with gfile.GFile(f"{root}/notes.txt", "w") as file:
    file.write("one")
with gfile.GFile(f"{root}/notes.txt", "a") as file:
    file.write(" two")
assert gfile.GFile(f"{root}/notes.txt").read() == "one two"
gfile.copy(f"{root}/notes.txt", f"{root}/copy.txt")
gfile.rename(f"{root}/copy.txt", f"{root}/moved.txt")
assert sorted(gfile.glob(f"{root}/*.txt")) == [f"{root}/moved.txt", f"{root}/notes.txt"]
try:
    gfile.GFile(f"{root}/nothing").read()
    raise SystemExit("no error")
except tf.errors.NotFoundError:
    pass
with tf.io.TFRecordWriter(f"{root}/records") as writer:
    for number in range(1000):
        writer.write(str(number).encode() * 100)
assert sum(1 for _ in tf.data.TFRecordDataset(f"{root}/records")) == 1000
checkpoint = tf.train.Checkpoint(value=tf.Variable(tf.ones([1000, 100])))
saved = tf.train.CheckpointManager(checkpoint, f"{root}/checkpoints", max_to_keep=2)
for _ in range(3):
    saved.save()
checkpoint.restore(saved.latest_checkpoint).assert_consumed()
assert len([name for name in gfile.listdir(f"{root}/checkpoints") if name.endswith(".index")]) == 2
gfile.rmtree(root)
assert not gfile.exists(f"{root}/big")
print("done")
"""


@pytest.mark.slow
def test_tensorflows_own_file_system(
    gcs: RunningGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in REMOVED:
        monkeypatch.delenv(name, raising=False)
    with proxy_to(gcs, tmp_path / "ca") as (url, ca_file):
        environment = {
            "https_proxy": url,
            "CURL_CA_BUNDLE": ca_file,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "anyone",
            "NO_GCE_CHECK": "true",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        ended = python("-c", GFILE, BUCKET, variables=environment)
        assert ended.returncode == 0, ended.stderr[-4000:]
        assert ended.stdout.endswith("done\n")


@pytest.mark.daily
def test_many_files_go_up_and_come_down(bucket: storage.Bucket, tmp_path: Path) -> None:
    source, target = tmp_path / "up", tmp_path / "down"
    source.mkdir()
    target.mkdir()
    names = [f"shard-{number:03}" for number in range(40)]
    for name in names:
        (source / name).write_bytes(os.urandom(10_000))
    failures = transfer_manager.upload_many_from_filenames(
        bucket, names, source_directory=str(source), blob_name_prefix="data/", worker_type="thread"
    )
    assert failures == [None] * len(names)
    skipped = transfer_manager.upload_many_from_filenames(
        bucket, names[:3], source_directory=str(source), blob_name_prefix="data/",
        skip_if_exists=True, worker_type="thread",
    )  # fmt: skip
    assert all(isinstance(error, exceptions.PreconditionFailed) for error in skipped)
    assert {blob.metageneration for blob in bucket.list_blobs(prefix="data/")} == {1}
    transfer_manager.download_many_to_path(
        bucket, names, destination_directory=str(target), blob_name_prefix="data/", worker_type="thread"
    )
    assert all((target / name).read_bytes() == (source / name).read_bytes() for name in names)


@pytest.mark.parametrize("checksum", ["auto", "md5", None])
def test_a_large_file_goes_up_in_parts(
    gcs: RunningGcs, bucket: storage.Bucket, tmp_path: Path, checksum: str | None
) -> None:
    data = os.urandom(23 * MIB + 17)
    (tmp_path / "big").write_bytes(data)
    blob = bucket.blob("dir/größe")
    blob.metadata = {"k": "v"}
    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "big"), blob, chunk_size=5 * MIB, worker_type="thread", checksum=checksum
    )
    again = bucket.get_blob("dir/größe")
    assert (again.size, again.metadata, again.md5_hash) == (len(data), {"k": "v"}, None)
    assert again.download_as_bytes(checksum="crc32c") == data


def test_a_large_object_comes_down_in_slices(bucket: storage.Bucket, tmp_path: Path) -> None:
    data = os.urandom(11 * MIB + 5)
    blob = bucket.blob("big")
    blob.upload_from_string(data)
    transfer_manager.download_chunks_concurrently(
        blob, str(tmp_path / "big"), chunk_size=2 * MIB, worker_type="thread"
    )
    assert (tmp_path / "big").read_bytes() == data


def test_a_failed_upload_in_parts_is_aborted(bucket: storage.Bucket, gcs: RunningGcs, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 6 * MIB)
    blob = bucket.blob("a", chunk_size=None)
    blob.upload_from_string(b"old")
    with pytest.raises(Exception, match="400"):
        transfer_manager.upload_chunks_concurrently(
            str(tmp_path / "big"), blob, chunk_size=1 * MIB, worker_type="thread"
        )
    assert bucket.blob("a").download_as_bytes() == b"old"
    assert list(gcs.server.store.database.rows(str, "select id from multiparts")) == []
