"""Why a script failed, from its log and its signal."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tpuctl.worker.job import causes
from tpuctl.worker.records import CHIPS_HELD, DISK_FULL, OUT_OF_MEMORY


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
        (b"rm: cannot remove 'x': Device or resource busy", "", 3, ""),
        (b"", "", 3, ""),
    ],
)
def test_the_cause_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: bytes, signal: str, kills: int, cause: str
) -> None:
    """The host has killed three processes for want of memory by now."""
    monkeypatch.setattr(causes, "count_oom_kills", lambda: 3)
    (tmp_path / "log").write_bytes(log)
    assert causes.of_failure(str(tmp_path / "log"), signal, kills) == cause


def test_an_error_of_the_supervisor_may_be_a_full_disk() -> None:
    assert causes.of_error(OSError(errno.ENOSPC, "No space left on device")) == DISK_FULL
    assert causes.of_error(FileNotFoundError("x")) == causes.of_error(ValueError()) == ""


@pytest.mark.parametrize(
    ("log", "line"),
    [(b"a\nb \n\n", "b"), (b"10%\r20%\r", "20%"), (b"", ""), (b"x" * 999, "x" * 300), (b"\xff\n", "\ufffd")],
)
def test_the_last_line_of_a_log(tmp_path: Path, log: bytes, line: str) -> None:
    (tmp_path / "log").write_bytes(log)
    assert causes.last_line(str(tmp_path / "log")) == line
    assert causes.last_line(str(tmp_path / "no log")) == ""


def test_the_kernels_count_is_read() -> None:
    assert causes.count_oom_kills() >= 0
