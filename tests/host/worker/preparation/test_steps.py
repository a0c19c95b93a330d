"""Only the submitted code is unpacked, and only into its folder.

The set-up command: its output, its failures, its limit, and what it leaves.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import SPEC, tar
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker.preparation import steps
from tpuctl.polling import Backoff, poll


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def fetch(worker_bucket: gcs.Bucket, bucket: Bucket, data: bytes, folder: Path, **changes: object) -> None:
    """Store a bundle and unpack it by its spec, or by another one."""
    bucket.create("bundles/x.tar.gz", data)
    code = {"bundle_sha256": hashlib.sha256(data).hexdigest(), "bundle_size": len(data)}
    spec = replace(SPEC, **{"bundle": "bundles/x.tar.gz", **code, **changes})
    steps.fetch(worker_bucket, spec, str(folder))


def test_files_are_unpacked_with_their_folders(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    data = tar(("job.py", b"print()"), (member("deep", tarfile.DIRTYPE), b""), ("deep/er/x.py", b"X = 1"))
    fetch(worker_bucket, bucket, data, tmp_path / "code")
    assert (tmp_path / "code/job.py").read_bytes() == b"print()"
    assert (tmp_path / "code/deep/er/x.py").read_bytes() == b"X = 1"


def test_a_bucket_that_does_not_answer_is_waited_for(
    worker_bucket: gcs.Bucket, bucket: Bucket, wire: FaultyWire, tmp_path: Path
) -> None:
    wire.plan = [503] * 2 * len(timing.REQUEST_PAUSES)
    fetch(worker_bucket, bucket, tar(("job.py", b"print()")), tmp_path / "code")
    assert (tmp_path / "code/job.py").read_bytes() == b"print()"


def test_a_bucket_that_does_not_answer_is_not_waited_for_without_end(
    worker_bucket: gcs.Bucket, bucket: Bucket, wire: FaultyWire, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(timing, "CODE_TIMEOUT", -1.0)
    wire.plan = [503] * 100
    with pytest.raises(gcs.UnreachableError):
        fetch(worker_bucket, bucket, tar(("job.py", b"print()")), tmp_path / "code")
    assert len(wire.plan) == 100 - len(timing.REQUEST_PAUSES)


def test_a_refusal_is_not_waited_for(
    worker_bucket: gcs.Bucket, bucket: Bucket, wire: FaultyWire, tmp_path: Path
) -> None:
    wire.plan = [403, 503]
    with pytest.raises(gcs.RefusedError):
        fetch(worker_bucket, bucket, tar(("job.py", b"print()")), tmp_path / "code")
    assert wire.plan == [503]


def test_another_hash_is_refused_before_anything_is_unpacked(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    with pytest.raises(steps.BundleError, match=r"gs://sim-project-tpuctl/bundles/x\.tar\.gz has the hash"):
        fetch(worker_bucket, bucket, tar(("job.py", b"")), tmp_path / "code", bundle_sha256="0" * 64)
    assert not (tmp_path / "code").exists()


def test_another_size_is_refused_before_a_byte_is_read(
    worker_bucket: gcs.Bucket, bucket: Bucket, wire: FaultyWire, tmp_path: Path
) -> None:
    with pytest.raises(steps.BundleError, match=r"has 9 bytes, not 8: it was replaced after the run was"):
        fetch(worker_bucket, bucket, b"x" * 9, tmp_path / "code", bundle_size=8)
    assert not [request for request in wire.requests if "alt=media" in request]


def test_a_bundle_that_unpacks_to_more_than_was_packed_is_refused_and_nothing_unpacked(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    data = tar(("job.py", b"print()"), ("zeros", bytes(50_000_000)))
    with pytest.raises(steps.BundleError, match="unpacks to more bytes"):
        fetch(worker_bucket, bucket, data, tmp_path / "code", unpacked_size=1_000_000)
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: gzip.compress(b"no tar" * 999)])
def test_a_damaged_bundle_is_named(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(steps.BundleError, match="the bundle is damaged"):
        fetch(worker_bucket, bucket, damage(tar(("job.py", b"print()" * 999))), tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_of_a_files_mode_only_the_owners_right_to_execute_it_counts(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    modes = {"tool": 0o6777, "data": 0o4666, "sticky": 0o1002}
    members = [tarfile.TarInfo(name) for name in modes]
    for info in members:
        info.mode, info.uid, info.uname = modes[info.name], 12345, "nobody"
    fetch(worker_bucket, bucket, tar(*((info, b"x") for info in members)), tmp_path / "code")
    stats = {name: (tmp_path / "code" / name).stat() for name in modes}
    mask = os.umask(0)
    os.umask(mask)
    assert {name: stat.S_IMODE(value.st_mode) for name, value in stats.items()} == {
        "tool": 0o755 & ~mask, "data": 0o644 & ~mask, "sticky": 0o644 & ~mask,
    }  # fmt: skip
    assert {value.st_uid for value in stats.values()} == {os.geteuid()}


@pytest.mark.parametrize(
    "evil",
    [
        member("../outside", tarfile.REGTYPE),
        member("a/../../outside", tarfile.REGTYPE),
        member("/tmp/outside", tarfile.REGTYPE),
        member("../code-of-another/x", tarfile.REGTYPE),
        member("a/./x", tarfile.REGTYPE),
        member("a//x", tarfile.REGTYPE),
        member("..", tarfile.DIRTYPE),
        member("/", tarfile.DIRTYPE),
        member("device", tarfile.BLKTYPE),
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
    with pytest.raises(steps.BundleError, match="not a plain file inside it"):
        fetch(worker_bucket, bucket, tar(("job.py", b"print()"), (evil, b"")), tmp_path / "code")
    assert sorted(tmp_path.rglob("*outside*")) == []
    assert not (tmp_path / "code").exists()


def test_a_bundle_that_is_not_there_is_named(worker_bucket: gcs.Bucket, tmp_path: Path) -> None:
    spec = replace(SPEC, bundle="bundles/none.tar.gz")
    with pytest.raises(FileNotFoundError, match=r"^gs://sim-project-tpuctl/bundles/none\.tar\.gz$"):
        steps.fetch(worker_bucket, spec, str(tmp_path / "code"))


@pytest.mark.parametrize(("part", "requests"), [(0, 1), (1, 1), (-1, 2)])
def test_a_bundle_is_fetched_in_parts(
    worker_bucket: gcs.Bucket, bucket: Bucket, wire: FaultyWire, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, part: int, requests: int,
) -> None:  # fmt: skip
    data = tar(("job.py", b"print()"), ("noise", os.urandom(500)))
    monkeypatch.setattr(gcs, "PART", len(data) + part)
    fetch(worker_bucket, bucket, data, tmp_path / "code")
    assert (tmp_path / "code/job.py").read_bytes() == b"print()"
    assert len([request for request in wire.requests if "alt=media" in request]) == requests
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_bundle_unpacks_to_just_the_bytes_that_were_packed(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    data = tar(("job.py", b"print()"))
    size = len(gzip.decompress(data))
    fetch(worker_bucket, bucket, data, tmp_path / "code", unpacked_size=size)
    with pytest.raises(steps.BundleError, match="unpacks to more bytes than were submitted"):
        fetch(worker_bucket, bucket, data + b"", tmp_path / "again", unpacked_size=len(b"print()"))


def test_a_folder_that_is_there_is_not_filled(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    with pytest.raises(FileExistsError):
        fetch(worker_bucket, bucket, tar(("job.py", b"print()")), tmp_path / "code")
    assert list((tmp_path / "code").iterdir()) == []


def run(folder: Path, command: str, timeout: float = 60) -> str:
    """Run a command and return the log."""
    steps.run(command, str(folder), {**os.environ, "WORD": "of the run"}, str(folder / "log"), timeout)
    return (folder / "log").read_text()


def test_its_output_is_in_the_log_and_it_has_the_variables_and_the_folder(tmp_path: Path) -> None:
    log = run(tmp_path, 'pwd; echo "$WORD" >&2; touch made')
    assert log == f"[tpuctl] running the setup command\n{tmp_path}\nof the run\n"
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("exit 3", "the setup command failed with exit code 3 (see the log)"),
        ("false\necho never", "the setup command failed with exit code 1 (see the log)"),
        ("no-such-program-of-tpuctl", "the setup command failed with exit code 127 (see the log)"),
        ("kill -KILL $$", "the setup command was ended by SIGKILL (see the log)"),
    ],
)
def test_a_failure_is_told_with_its_exit_code(tmp_path: Path, command: str, words: str) -> None:
    with pytest.raises(steps.SetupError) as failed:
        run(tmp_path, command)
    assert str(failed.value) == words
    assert "never\n" not in (tmp_path / "log").read_text()


def test_it_ends_with_its_children_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETUP_GRACE", 0.2)
    original = steps.subprocess.Popen.wait

    def wait(process: object, timeout: float | None = None) -> int:
        await_child(tmp_path)  # its time does not begin before
        return original(process, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(steps.subprocess.Popen, "wait", wait)
    child = "echo $$ > child.new; mv child.new child"
    command = f"trap '' TERM; sh -c '{child}; trap \"\" TERM; sleep 600 & wait; sleep 600'"
    with pytest.raises(steps.SetupError, match=r"did not end in 1 s"):
        run(tmp_path, command, timeout=1)
    wait_for_end(int((tmp_path / "child").read_text()))


def test_it_ends_with_its_children_when_the_run_is_stopped(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def wait(_seconds: float | None = None) -> int:
        await_child(tmp_path)
        raise Stop

    threads = set(threading.enumerate())
    original = steps.subprocess.Popen.wait
    calls: list[float | None] = []

    def patched(process: object, timeout: float | None = None) -> int:
        calls.append(timeout)
        return wait() if len(calls) == 1 else original(process, timeout)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.subprocess.Popen, "wait", patched)  # as a signal handler that raises
        with pytest.raises(Stop):
            run(tmp_path, "sh -c 'echo $$ > child.new; mv child.new child; sleep 600'")
    wait_for_end(int((tmp_path / "child").read_text()))
    assert set(threading.enumerate()) <= threads, "one of an earlier test may end meanwhile"


def await_child(folder: Path) -> None:
    """Wait until the command's child has told its number."""
    poll(lambda: (folder / "child").exists() or None, awaiting="a child", timeout=60, backoff=Backoff(0.05))


def wait_for_end(pid: int) -> None:
    def ended() -> bool | None:
        try:
            return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] or None
        except OSError:
            return True

    poll(ended, awaiting=f"process {pid} to end", timeout=60, backoff=Backoff(0.02, 0.1))
