"""The script's process: started as a file, whatever the file is called.

Why a script failed, from its log and its signal.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cloud.web_server import serving
from tests.host.worker.host import SPEC
from tests.hostile.names import NAMES
from tests.isolation.ports import refusing_port
from tpuctl.host.worker.job import script
from tpuctl.host.worker.job.script import Script, Sentinel, command
from tpuctl.host.worker.records import (
    CHIPS_HELD,
    CHIPS_LOCKED,
    COMMAND,
    DISK_FULL,
    MAINTENANCE,
    MODULE,
    OUT_OF_MEMORY,
    PREEMPTION,
    SCRIPT,
    SHELL,
)
from tpuctl.polling import Backoff, poll

FILE_NAMES = [name for name in NAMES.values() if "/" not in name and 0 < len(name) < 250]


@pytest.mark.parametrize("name", ["-c", "-cimport os.py", "-m", "--help", *FILE_NAMES])
def test_a_script_of_any_name_is_run_and_passes_for_no_option(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("import sys\nprint(sys.argv)\n")
    started = command(replace(SPEC, script=name, arguments=["--rate"]), {}, sys.executable)
    script = Script(started, str(tmp_path), {}, str(tmp_path / "log.txt"), str(tmp_path / "lock"))
    codes = poll(
        lambda: None if script.poll() is None else [script.poll()], awaiting="its end", timeout=60,
        backoff=Backoff(0.02),
    )  # fmt: skip
    assert (codes, (tmp_path / "log.txt").read_text()) == ([0], f"{[name, '--rate']}\n")


def test_what_was_printed_before_a_script_does_not_count_as_its_output(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("installing jax\n")
    os.utime(tmp_path / "log", (7, 7))
    Script(["true"], str(tmp_path), {}, str(tmp_path / "log"), str(tmp_path / "lock"))._process.wait()
    assert (tmp_path / "log").stat().st_mtime > 7


def test_a_sentinel_notices_the_signal_of_a_host_and_ends_when_it_is_closed() -> None:
    signalled, closed = Sentinel(), Sentinel()
    assert [signalled.is_signalled, closed.is_signalled] == [False, False]
    os.kill(signalled.pid, signal.SIGTERM)
    poll(lambda: signalled.is_signalled or None, awaiting="its end", timeout=60, backoff=Backoff(0.02))
    assert not closed.is_signalled
    closed.close()
    assert closed.is_signalled
    signalled.close()


@pytest.mark.parametrize(
    ("kind", "script", "directory", "started"),
    [
        (SCRIPT, "scripts/a.py", "", [sys.executable, "-u", "--", "scripts/a.py"]),
        (SCRIPT, "scripts/a.py", "scripts", [sys.executable, "-u", "--", "a.py"]),
        (SCRIPT, "a.py", "deep/er", [sys.executable, "-u", "--", "../../a.py"]),
        (MODULE, "pkg.train", "src", [sys.executable, "-u", "-m", "pkg.train"]),
        (SHELL, "run.sh", "", ["/bin/bash", "--", "run.sh"]),
        (COMMAND, "python", "", ["python"]),
    ],
)
def test_each_kind_of_program_has_its_command(
    kind: str, script: str, directory: str, started: list[str]
) -> None:
    spec = replace(SPEC, kind=kind, script=script, directory=directory, arguments=["--x", "1"])
    assert command(spec, {}, sys.executable) == [*started, "--x", "1"]


def test_arguments_have_the_values_of_documented_variables_alone() -> None:
    words = ["--workdir={TPUCTL_MODEL_DIR}/a", "{TPUCTL_RUN}{TPUCTL_WORKER}", "{HOME}", "{TPUCTL_X}", "{{x}}"]
    variables = {
        "TPUCTL_MODEL_DIR": "gs://b/o",
        "TPUCTL_RUN": "r",
        "TPUCTL_WORKER": "0",
        "HOME": "/",
        "TPUCTL_X": "secret",
    }
    filled = command(replace(SPEC, arguments=words), variables, sys.executable)[-5:]
    assert filled == ["--workdir=gs://b/o/a", "r0", "{HOME}", "{TPUCTL_X}", "{{x}}"]


@pytest.mark.parametrize(
    ("log", "signal", "kills", "cause"),
    [
        (b"step 1\nOSError: [Errno 28] No space left on device\n", "", 3, DISK_FULL),
        (b"cp: error writing 'x': No space left on device", "", 3, DISK_FULL),
        (b"Traceback ...\nMemoryError\n", "", 3, OUT_OF_MEMORY),
        (b"RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm", "", 3, OUT_OF_MEMORY),
        (b"step 1\n", "SIGKILL", 2, OUT_OF_MEMORY),
        (b"step 1\n", "SIGKILL", 3, ""),
        (b"step 1\n", "SIGXFSZ", 3, DISK_FULL),
        (b"a MemoryError is handled\nValueError: bad\n", "", 3, ""),
        (b"No space left on device\n" + b"x\n" * 20_000, "", 3, ""),  # long ago
        (
            b"RuntimeError: The TPU is already in use by process with pid 77. Not attempting",
            "",
            3,
            CHIPS_HELD,
        ),
        (b"open(/dev/vfio/0): Device or resource busy: Couldn't open iommu group", "", 3, CHIPS_HELD),
        (b"/dev/accel0: open failed: Device or resource busy", "", 3, CHIPS_HELD),
        (
            b"ABORTED: libtpu.so already in use by another process probably owned by another user. Run "
            b'"$ sudo lsof -w /dev/accel0" to figure out which process is using the TPU.',
            "",
            3,
            CHIPS_LOCKED,
        ),
        (
            b"ABORTED: The TPU is already in use by another process probably owned by another user. Run",
            "",
            3,
            CHIPS_LOCKED,
        ),
        (b"libtpu.so already in used by another process. Not attempting to load", "", 3, CHIPS_HELD),
        (b"ABORTED: Internal error when accessing libtpu multi-process lockfile. Run", "", 3, CHIPS_LOCKED),
        (b"The TPU is in use or the lock file is stale", "", 3, CHIPS_LOCKED),
        (
            b"Resource exhausted: From /job:tpu_worker/replica:0/task:0:\nAttempting to reserve 3.95G at the "
            b"bottom of memory. That was not possible. There are 1.92G free" + b"\nSize: 64.00M" * 2000,
            "",
            3,
            OUT_OF_MEMORY,
        ),
        (b"Ran out of memory in memory space hbm. Used 8.38G of 8.00G hbm.", "", 3, OUT_OF_MEMORY),
        (b"rm: cannot remove 'x': Device or resource busy", "", 3, ""),
        (b"", "", 3, ""),
    ],
)
def test_the_cause_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: bytes, signal: str, kills: int, cause: str
) -> None:
    """The host has killed three processes for want of memory by now."""
    monkeypatch.setattr(script, "count_oom_kills", lambda: 3)
    (tmp_path / "log").write_bytes(log)
    assert script.of_failure(str(tmp_path / "log"), signal, kills) == cause


def test_an_error_of_the_supervisor_may_be_a_full_disk() -> None:
    assert script.of_error(OSError(errno.ENOSPC, "No space left on device")) == DISK_FULL
    assert script.of_error(FileNotFoundError("x")) == script.of_error(ValueError()) == ""


@pytest.mark.parametrize(
    ("log", "line"),
    [(b"a\nb \n\n", "b"), (b"10%\r20%\r", "20%"), (b"", ""), (b"x" * 999, "x" * 300), (b"\xff\n", "\ufffd")],
)
def test_the_last_line_of_a_log(tmp_path: Path, log: bytes, line: str) -> None:
    (tmp_path / "log").write_bytes(log)
    assert script.last_line(str(tmp_path / "log")) == line
    assert script.last_line(str(tmp_path / "no log")) == ""


def test_the_kernels_count_is_read() -> None:
    assert script.count_oom_kills() >= 0


@pytest.mark.parametrize(
    ("free", "cause"), [(1024 * 1024 - 1, DISK_FULL), (1024 * 1024, ""), (0, DISK_FULL), (1 << 40, "")]
)
def test_a_disk_with_less_than_a_mebibyte_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, cause: str
) -> None:
    (tmp_path / "log").write_bytes(b"ValueError: oh\n")
    monkeypatch.setattr(script.os, "statvfs", lambda folder: SimpleNamespace(f_bavail=free, f_frsize=1))
    assert script.of_failure(str(tmp_path / "log"), "", 0) == cause


@pytest.mark.parametrize(
    ("number", "cause"),
    [(errno.ENOSPC, DISK_FULL), (errno.EDQUOT, DISK_FULL), (errno.EFBIG, DISK_FULL), (errno.EACCES, "")],
)
def test_a_disk_that_takes_no_file_may_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cause: str
) -> None:
    """For want of a quota, or of inodes."""

    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "log").write_bytes(b"ValueError: oh\n")
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert script.of_failure(str(tmp_path / "log"), "", 0) == cause
    assert script.of_error(OSError(number, "oh")) == cause


@pytest.mark.parametrize("step", ["write", "close"])
def test_a_disk_that_takes_no_64_kilobytes_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Also where the system says so only when the file is closed, as on a network."""
    written: list[int] = []

    class Probe:
        def __enter__(self) -> Probe:
            return self

        def write(self, data: bytes) -> None:
            written.append(len(data))
            if step == "write":
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

        def __exit__(self, *_: object) -> None:
            if step == "close":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "log").write_bytes(b"ValueError: oh\n")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Probe())
    assert script.of_failure(str(tmp_path / "log"), "", 0) == DISK_FULL
    assert written == [65_536]


@pytest.mark.parametrize(
    ("text", "kills"), [("oom_kill_disable 9\noom_kill 17\nx 1\n", 17), ("pgfault 1\n", 0), (None, 0)]
)
def test_processes_that_the_kernel_has_killed_are_counted(
    monkeypatch: pytest.MonkeyPatch, text: str | None, kills: int
) -> None:
    def read(path: str, **_: object) -> io.StringIO:
        assert path == "/proc/vmstat"
        if text is None:
            raise FileNotFoundError(path)
        return io.StringIO(text)

    monkeypatch.setattr(script, "open", read, raising=False)  # that of the module alone
    assert script.count_oom_kills() == kills


class TestStop:
    PREEMPTED, EVENT = (f"/computeMetadata/v1/instance/{name}" for name in ("preempted", "maintenance-event"))

    @pytest.mark.parametrize(
        ("preempted", "event", "cause"),
        [
            (b"TRUE\n", b"NONE", PREEMPTION), (b"TRUE", b"TERMINATE_ON_HOST_MAINTENANCE", PREEMPTION),
            (b"FALSE", b"TERMINATE_ON_HOST_MAINTENANCE", MAINTENANCE), (b"FALSE", b"NONE\n", ""),
            (b"FALSE", None, ""), (None, b"MIGRATE_ON_HOST_MAINTENANCE", MAINTENANCE), (None, None, ""),
        ],
    )  # fmt: skip
    def test_the_metadata_server_says_why_a_host_stops(
        self, monkeypatch: pytest.MonkeyPatch, preempted: bytes | None, event: bytes | None, cause: str
    ) -> None:
        files = {self.PREEMPTED: preempted, self.EVENT: event}
        with serving({path: data for path, data in files.items() if data is not None}) as server:
            monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
            assert script.of_stop() == cause

    def test_one_that_does_not_answer_announces_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with refusing_port() as port:
            monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{port}")
            assert script.of_stop() == ""
