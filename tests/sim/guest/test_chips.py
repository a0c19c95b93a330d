"""The chips of a host are one program's: a second one fails as with libtpu, until the first has ended."""

from __future__ import annotations

import os
import subprocess
import sys
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


def start(program: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a Python program on the host whose folder this is."""
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), "TPUCTL_SIM_DISK": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**known, **environment("v3-8"), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def answer(folder: Path, **variables: str) -> str:
    """Return what a second program is told."""
    return start(TAKE, folder, **variables).communicate(timeout=60)[0].strip()


def test_a_second_program_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with start(TAKE, tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "\n"
        assert answer(tmp_path) == REFUSAL.format(first.pid)
        assert answer(tmp_path / "other") == "", "the chips of another host are free"
        first.kill()
    assert answer(tmp_path) == ""


def test_a_program_takes_the_chips_once_and_its_children_do_not_have_them(tmp_path: Path) -> None:
    program = (
        "import os, _tpuctl_chips as chips\n"
        "told = [chips.take(os.environ), chips.take(os.environ)]\n"
        "if os.fork() == 0: print(chips.take(os.environ), flush=True); os._exit(0)\n"
        "os.wait(); print(told, os.getpid())"
    )
    child, own = start(program, tmp_path).communicate(timeout=60)[0].splitlines()
    assert own.startswith("['', ''] ")
    assert child == REFUSAL.format(own.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("variables", "shares"),
    [
        ({"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}, True),
        ({"TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1"}, True),
        ({"TPU_LOAD_LIBRARY": "1"}, True),
        ({"TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1"}, False),
    ],
)
def test_programs_that_take_some_chips_share_them(
    tmp_path: Path, variables: dict[str, str], shares: bool
) -> None:
    with start(TAKE, tmp_path) as first:
        assert first.stdout is not None
        first.stdout.readline()
        assert answer(tmp_path, **variables) == ("" if shares else REFUSAL.format(first.pid))
        first.kill()


def test_jax_and_tensorflow_are_refused(tmp_path: Path) -> None:
    with start(TAKE, tmp_path) as first:
        assert first.stdout is not None
        first.stdout.readline()
        of_jax, of_tensorflow = start(BOTH, tmp_path).communicate(timeout=300)[0].splitlines()
        assert f"ABORTED: {REFUSAL.format(first.pid)}" in of_jax
        assert of_tensorflow == REFUSAL.format(first.pid)
        first.kill()


def test_without_a_host_there_is_no_lock(tmp_path: Path) -> None:
    assert answer(tmp_path, TPUCTL_SIM_DISK="") == ""
    assert list(FOLDER.glob("*lockfile")) == []
