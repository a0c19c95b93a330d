"""The chips of a host are one program's: a second one fails as with libtpu, until the first has ended.

The words are those of openxla/xla, xla/stream_executor/tpu/tpu_initialize_util.cc.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tpuctl.sim.guest import FOLDER, environment

TAKE = "import os, sys, _tpuctl_chips; print(_tpuctl_chips.take(os.environ), flush=True); sys.stdin.read()"
REFUSAL = (
    "The TPU is already in use by process with pid {}. Not attempting to load libtpu.so in this process."
)
BOTH = """
import jax
try:
    jax.devices()
except RuntimeError as error:
    print(error)
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
try:
    tf.tpu.experimental.initialize_tpu_system(resolver)
except tf.errors.AbortedError as error:
    print(error.message)
"""


BUSY = "TPU initialization failed: open(/dev/{}): Device or resource busy"
OF_ANOTHER_USER = (
    "The TPU is already in use by another process probably owned by another user. "
    'Run "$ sudo lsof -w /dev/accel0" to figure out which process is using the TPU. '
    'If you still get this message, run "$ sudo rm /tmp/libtpu_lockfile".'
)
HALF = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,2,1"}


def host(folder: Path, *chips: str) -> Path:
    """Return a folder that stands for the root of a host's file system."""
    (folder / "tmp").mkdir(parents=True)
    for chip in chips or ("accel0", "accel1", "accel2", "accel3"):
        device = folder / "dev" / chip
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a host with four chips."""
    return host(tmp_path / "host")


def start(program: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a Python program on the host whose folder this is."""
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), "TPUCTL_HOST_ROOT": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**known, **environment("v3-8"), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@contextmanager
def holder(folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Have a program hold chips until the block ends, in which it is killed."""
    with start(TAKE, folder, **variables) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "\n"
        yield first
        first.kill()


def answer(folder: Path, program: str = TAKE, **variables: str) -> str:
    """Return what a second program is told."""
    return start(program, folder, **variables).communicate(timeout=60)[0].strip()


def test_a_second_program_is_refused_until_the_first_is_killed(folder: Path, tmp_path: Path) -> None:
    with holder(folder) as first:
        assert answer(folder) == REFUSAL.format(first.pid)
        assert answer(host(tmp_path / "other")) == "", "the chips of another host are free"
    assert answer(folder) == ""


def test_a_program_takes_the_chips_once_and_its_children_do_not_have_them(folder: Path) -> None:
    program = (
        "import os, _tpuctl_chips as chips\n"
        "told = [chips.take(os.environ), chips.take(os.environ)]\n"
        "if os.fork() == 0: print(chips.take(os.environ), flush=True); os._exit(0)\n"
        "os.wait(); print(told, os.getpid())"
    )
    child, own = start(program, folder).communicate(timeout=60)[0].splitlines()
    assert own.startswith("['', ''] ")
    assert child == REFUSAL.format(own.rpartition(" ")[2])


def test_who_holds_the_chips_has_their_files_open_and_locks_the_lock_file(folder: Path) -> None:
    with holder(folder) as first:
        files = {str(path.readlink()) for path in Path(f"/proc/{first.pid}/fd").iterdir()}
        lock = folder / "tmp/libtpu_lockfile"
        assert {str(lock), *(str(folder / f"dev/accel{chip}") for chip in range(4))} <= files
        assert f" {first.pid} " in next(
            line for line in Path("/proc/locks").read_text().splitlines() if f":{lock.stat().st_ino} " in line
        )
    assert lock.exists(), "a killed process leaves it"
    assert answer(folder) == ""
    assert not lock.exists(), "one that ends deletes it"


def test_a_lock_file_of_another_user_refuses_although_nobody_holds_the_chips(folder: Path) -> None:
    with holder(folder):
        pass
    stranger = f"import os; os.geteuid = lambda: {os.geteuid() + 1}\n{TAKE}"
    assert answer(folder, stranger) == OF_ANOTHER_USER


@pytest.mark.parametrize(
    "variables", [HALF, {"TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1"}, {"TPU_LOAD_LIBRARY": "1"}]
)
def test_programs_that_take_some_chips_share_them(folder: Path, variables: dict[str, str]) -> None:
    with holder(folder, TPU_VISIBLE_CHIPS="0,1", **HALF):
        assert answer(folder, TPU_VISIBLE_CHIPS="2,3", **variables) == ""
        assert answer(folder, TPU_VISIBLE_DEVICES="1,2", **variables) == BUSY.format("accel1")
        assert answer(folder) == BUSY.format("accel0"), "who takes all of them"


def test_bounds_of_the_whole_host_share_nothing(folder: Path) -> None:
    with holder(folder) as first:
        assert answer(folder, TPU_CHIPS_PER_PROCESS_BOUNDS="2,2,1") == REFUSAL.format(first.pid)


def test_later_chips_are_groups_of_vfio(tmp_path: Path) -> None:
    folder = host(tmp_path / "v5e", "vfio/0", "vfio/vfio")
    with holder(folder) as first:
        files = {str(path.readlink()) for path in Path(f"/proc/{first.pid}/fd").iterdir()}
        assert str(folder / "dev/vfio/0") in files
        assert str(folder / "dev/vfio/vfio") not in files
        assert answer(folder, **HALF) == BUSY.format("vfio/0")


def test_jax_and_tensorflow_are_refused(folder: Path) -> None:
    with holder(folder) as first:
        of_jax, of_tensorflow = start(BOTH, folder).communicate(timeout=300)[0].splitlines()
        assert f"ABORTED: {REFUSAL.format(first.pid)}" in of_jax
        assert of_tensorflow == REFUSAL.format(first.pid)


def test_torch_xla_holds_them_and_is_not_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "torch_xla.py").touch()
    found = f"import sys; sys.path.append({str(tmp_path)!r}); import torch_xla"
    program = f"{found}; print(flush=True); sys.stdin.read()"
    with start(program, folder) as first, start(program, folder) as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "\n"
        assert answer(folder) in (REFUSAL.format(first.pid), REFUSAL.format(second.pid))
        first.kill()
        second.kill()


def test_without_a_host_there_is_no_lock(folder: Path) -> None:
    assert answer(folder, TPUCTL_HOST_ROOT="") == ""
    assert list(FOLDER.glob("*lockfile")) == []
