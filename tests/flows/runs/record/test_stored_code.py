"""The code of a run as the bucket has it: its own and whole, or an error that names the object.

What the bucket has of a run that was submitted and has ended: all that makes its result again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.bucket_objects.records import RUN
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.running_simulator import CommandResult
from tpuctl import runs
from tpuctl.bucket_layout import bundle
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.runs import results
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.record import stored_code
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.provenance import HostEnvironment
from tpuctl.runs import Git, Run

HINT = "Submit the script from your own files: tpuctl submit"


def packed(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return an archive of members: name, type, content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def stored(data: bytes) -> tuple[Bucket, Run]:
    """Return a bucket with an archive, and the record of a run that names it."""
    memory, sha256 = MemoryBucket(), hashlib.sha256(data).hexdigest()
    memory.put(bundle(sha256), data)
    return cast("Bucket", memory), msgspec.structs.replace(
        RUN, run="r1", script="job.py", bundle_sha256=sha256
    )


def test_code_has_the_sizes_that_it_was_packed_with(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import lib\nprint(1)\n")
    (tmp_path / "lib.py").write_text("x = 1\n" * 1000)
    made = bundles.pack(lone(tmp_path / "job.py"))
    code = stored_code.fetch(*stored(made.data))
    assert (code.count, code.files_size, code.unpacked_size) == (2, 6020, made.unpacked_size)
    assert (code.sha256, code.script, code.content) == (made.sha256, "job.py", made.content)
    assert dict(code.files()) == dict(made.files())


@pytest.mark.parametrize(
    ("git", "begin"), [(None, ""), (Git("0f" * 20, ""), f"Its commit was {'0f' * 20}. ")]
)
def test_code_that_was_deleted_names_the_commit_if_there_was_one(git: Git | None, begin: str) -> None:
    record = msgspec.structs.replace(RUN, run="r1", bundle_sha256="1" * 64, git=git)
    with pytest.raises(NotFoundError) as gone:
        stored_code.fetch(cast("Bucket", MemoryBucket()), record)
    assert (gone.value.hint, gone.value.facts) == (f"{begin}{HINT}", {"run": "r1"})


def test_other_bytes_are_refused() -> None:
    bucket, record = stored(b"code")
    cast("MemoryBucket", bucket).put(bundle(record.bundle_sha256), b"other")
    with pytest.raises(StateError) as damaged:
        stored_code.fetch(bucket, record)
    name = f"gs://b/bundles/{record.bundle_sha256}.tar.gz"
    assert damaged.value.message == f"{name} does not hold the code that it is named by."
    assert (damaged.value.hint, damaged.value.facts) == (HINT, {"run": "r1"})


@pytest.mark.parametrize(
    "data",
    [
        b"no archive",
        b"",
        gzip.compress(b"x" * 512),
        packed(("job.py", tarfile.REGTYPE, b"1"))[:-9],
        packed(("job.py", tarfile.SYMTYPE, b"")),
        packed(("folder", tarfile.DIRTYPE, b"")),
        packed(("../job.py", tarfile.REGTYPE, b"1")),
        packed(("a/../job.py", tarfile.REGTYPE, b"1")),
        packed(("/job.py", tarfile.REGTYPE, b"1")),
        packed(("./job.py", tarfile.REGTYPE, b"1")),
    ],
    ids=range(10),  # packed bytes have the time in them
)
def test_what_is_no_archive_of_files_is_refused(data: bytes) -> None:
    with pytest.raises(StateError, match="is no archive of code: "):
        stored_code.fetch(*stored(data))


def test_code_of_a_file_that_is_twice_in_it_is_refused() -> None:
    data = packed(("job.py", tarfile.REGTYPE, b"1"), ("job.py", tarfile.REGTYPE, b"2"))
    with pytest.raises(StateError, match="is no archive of code: it has a file twice"):
        stored_code.fetch(*stored(data))


def test_no_archive_fills_the_memory() -> None:
    bucket, record = stored(bomb(1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(StateError, match="has an extended header of 67108864 bytes"):
            stored_code.fetch(bucket, record)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def bomb(size: int) -> bytes:
    """Return a small archive whose first header says so many bytes."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, size
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packing.compress(header.tobuf(tarfile.USTAR_FORMAT))]
    parts += [packing.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join((*parts, packing.flush()))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unpacked_size": 20_000}, "it unpacks to more than 20000 bytes"),
        ({"unpacked_size": 100}, "it unpacks to more than 100 bytes"),
    ],
)
def test_code_that_unpacks_to_more_than_was_submitted_is_refused(changes: dict[str, int], why: str) -> None:
    bucket, record = stored(packed(("job.py", tarfile.REGTYPE, bytes(30_000))))
    with pytest.raises(StateError, match=f"is no archive of code: {why}"):
        stored_code.fetch(bucket, msgspec.structs.replace(record, **changes))


def test_an_archive_that_is_larger_than_its_code_is_not_fetched() -> None:
    bucket, record = stored(packed(("job.py", tarfile.REGTYPE, os.urandom(2 << 20))))
    with pytest.raises(StateError, match="is larger than the code that the record names"):
        stored_code.fetch(bucket, msgspec.structs.replace(record, unpacked_size=1000))
    assert cast("MemoryBucket", bucket).bytes_read == 0


def test_the_header_is_that_of_the_script() -> None:
    header = b'# /// script\n# dependencies = ["numpy"]\n# ///\n'
    data = packed(("a.py", tarfile.REGTYPE, b"1"), ("job.py", tarfile.REGTYPE, header))
    assert stored_code.header_of(stored_code.fetch(*stored(data))).dependencies == ("numpy",)


@pytest.mark.parametrize(
    "data",
    [
        packed(("jobs.py", tarfile.REGTYPE, b"1")),
        packed(("job.py", tarfile.REGTYPE, b"#" * ((16 << 20) + 1))),
    ],
    ids=["another name", "more than 16 MiB"],
)
def test_code_without_its_script_has_no_header(data: bytes) -> None:
    bucket, record = stored(data)
    with pytest.raises(StateError) as missing:
        stored_code.header_of(stored_code.fetch(bucket, record))
    assert missing.value.message == f"The code {record.bundle_sha256[:12]} has no script job.py."
    assert missing.value.hint == "Submit it again."


JOB = """\
# /// script
# dependencies = ["google-cloud-storage"]
# [tool.tpuctl]
# env = { DATA_SEED = "5", RATE = "0.1", MODE = "fast" }
# ///
import os
from google.cloud import storage
place = os.environ["TPUCTL_CHECKPOINT_DIR"].removeprefix("gs://")
bucket, _, folder = place.partition("/")
storage.Client().bucket(bucket).blob(f"{folder}/weights.npy").upload_from_string(b"0123")
"""


@pytest.mark.daily
def test_it_has_seeds_packages_and_results(
    tpuctl: Callable[..., CommandResult], bucket: Bucket, node: str
) -> None:
    Path("job.py").write_text(JOB)
    options = ("--name", "r1", "--env", "PYTHONHASHSEED=0", "--env", "RATE=0.2", "--attach")
    submitted = tpuctl("submit", "job.py", *options, "--", "--seed", "7", "--epochs", "3")
    assert submitted.code == 0, submitted.err
    run = StoredRun(bucket, "r1")
    assert run.record.seeds == {"--seed": "7", "PYTHONHASHSEED": "0", "DATA_SEED": "5"}
    assert run.record.of_header == ("DATA_SEED", "MODE")
    name = run.paths.environment(1, 0)
    environment = runs.decode(bucket.read(name), HostEnvironment, name)
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.installed["google-cloud-storage"]
    record = results.read(bucket, run.paths)
    assert record
    assert (record.outcome, [file.name for file in record.listed_files]) == (
        runs.SUCCEEDED, ["checkpoints/weights.npy"],
    )  # fmt: skip
    assert tpuctl("pull", "r1").code == 0
    assert Path("r1/results.json").read_bytes() == bucket.read(run.paths.results)
    assert Path("r1/attempts/1/workers/0/environment.json").is_file()
