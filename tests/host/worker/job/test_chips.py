"""Chips: they are waited for, who holds them is named, and a script that holds none is seen."""

from __future__ import annotations

import fcntl
import getpass
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC, Host
from tpuctl.host import timing
from tpuctl.host.worker.job import chips, processes
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.polling import Backoff, poll

FAST = Backoff(0.02, 0.1)
SOON = "timing.CHIP_LOOK, timing.HEARTBEAT = 0.0, 0.1\n"
IN_STEPS = """
import os, subprocess, sys, time
device = os.environ["TPUCTL_HOST_ROOT"] + "/dev/accel1"
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.02)
wait("open")
{opens}
wait("end")
"""
ITSELF = "held = open(device)"
CHILD = """
held = open(device)
child = subprocess.Popen(
    [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE,
    pass_fds=[held.fileno()], start_new_session=True,
)
held.close()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file system of a host with two chips, whose processes are those of this machine."""
    folder = tmp_path / "root"
    for place in ("dev", "tmp"):
        (folder / place).mkdir(parents=True)
    for chip in ("accel0", "accel1"):
        (folder / "dev" / chip).touch()
    monkeypatch.setenv("TPUCTL_HOST_ROOT", str(folder))
    monkeypatch.setattr(timing, "CHIPS_TIMEOUT", 0.0)
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def hold() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process that has a file open until its input ends."""
    with ExitStack() as stack:

        def start(path: Path, **variables: str) -> subprocess.Popen[bytes]:
            with path.open() as file:
                process = subprocess.Popen(
                    [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE,
                    pass_fds=[file.fileno()], env={**os.environ, **variables},
                )  # fmt: skip
            return stack.enter_context(process)

        yield start


def await_note(host: Host, has_no_chip: bool) -> WorkerStatus:
    def noted() -> WorkerStatus | None:
        status = host.find_status()
        return status if status and status.pid and status.has_no_chip == has_no_chip else None

    return poll(noted, awaiting=f"has_no_chip {has_no_chip}", timeout=60, backoff=FAST)


@pytest.mark.parametrize("opens", [ITSELF, pytest.param(CHILD, marks=pytest.mark.slow)])
def test_a_script_that_holds_no_chip_is_seen_until_it_or_a_child_does(host: Host, opens: str) -> None:
    with host.supervise(IN_STEPS.format(opens=opens), SOON):
        await_note(host, has_no_chip=True)
        (host.folder / "code/open").touch()
        await_note(host, has_no_chip=False)
        (host.folder / "code/end").touch()
    assert (host.status().exit_code, host.status().has_no_chip) == (0, False)


@pytest.mark.slow
def test_what_was_seen_last_stays_after_the_end(host: Host) -> None:
    with host.supervise(IN_STEPS.format(opens="sys.exit()"), SOON):
        await_note(host, has_no_chip=True)
        (host.folder / "code/open").touch()
    assert (host.status().exit_code, host.status().has_no_chip) == (0, True)


def test_a_script_that_has_ended_is_not_said_to_hold_one(
    root: Path, hold: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CHIP_LOOK", 0.0)
    script, notes = hold(Path(os.devnull)), list[bool]()
    watch = chips.ChipWatch(replace(SPEC, framework="jax"), script.pid, "/run", notes.append)
    watch.look()
    script.communicate()
    watch.look()
    assert notes == [True]


def test_a_script_that_uses_the_servers_of_a_slice_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "CHIP_LOOK", 0.0)
    watches = [
        chips.ChipWatch(replace(SPEC, framework=framework, workers=workers), 7, "/run", print)
        for framework, workers in (("tensorflow", 1), ("jax", 2), ("tensorflow", 2))
    ]
    assert [watch.due() for watch in watches] == [True, True, False]


def test_what_cannot_be_known_claims_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = chips.script_holds_one
    assert look(os.getpid(), "/run") is False
    opened = processes.open_files
    with monkeypatch.context() as patch:
        patch.setattr(processes, "open_files", lambda pid: opened(-1) if pid else {})
        assert look(os.getpid(), "/run") is False, "they have ended"
        patch.setattr(processes, "open_files", forbidden)
        assert look(os.getpid(), "/run") is None, "a process of another user"
    with monkeypatch.context() as patch:
        patch.setattr(processes, "program", lambda pid: b"docker")
        assert look(os.getpid(), "/run") is None, "its containers descend from a daemon"
        with (root / "dev/accel0").open():
            assert look(os.getpid(), "/run") is True
    with monkeypatch.context() as patch:
        patch.setattr(processes, "ids", lambda: [os.getpid()])
        assert look(os.getpid(), "/run") is None, "/proc hides processes of others"
    for device in (root / "dev").iterdir():
        device.unlink()
    assert look(os.getpid(), "/run") is None, "no device files"


def forbidden(pid: int) -> set[str]:
    raise PermissionError


def test_who_holds_a_chip_is_named_with_user_and_run(
    root: Path, log: Path, hold: Callable[..., subprocess.Popen[bytes]]
) -> None:
    chips.await_free(SPEC, str(log))
    assert not log.exists()
    run, other = hold(root / "dev/accel0", TPUCTL_RUN="cats"), hold(root / "dev/accel1", TPUCTL_RUN="")
    chips.await_free(SPEC, str(log))
    command = f"({sys.executable} -c import sys; sys.stdin.read()"[:61]
    of_run, of_nobody, *waiting = sorted(log.read_text().splitlines())
    user = getpass.getuser()
    assert of_run == f"[tpuctl] /dev/accel0 is held by process {run.pid} {command}) of {user}, of run 'cats'"
    assert of_nobody == f"[tpuctl] /dev/accel1 is held by process {other.pid} {command}) of {user}"
    assert waiting == [
        "[tpuctl] the chips are still held: the script starts all the same",
        "[tpuctl] waiting until that has ended, 0 s at most",
    ]


def test_a_script_starts_once_the_chips_are_free(
    host: Host, hold: Callable[..., subprocess.Popen[bytes]]
) -> None:
    holder = hold(Path(host.environment["TPUCTL_HOST_ROOT"]) / "dev/accel0")
    with host.supervise("print('started')", ""):
        host.wait_for_output(b"waiting until that has ended, 180 s at most\n")
        holder.communicate()
    first, _, *more = host.log().decode().splitlines()
    assert f"/dev/accel0 is held by process {holder.pid} (" in first
    assert more == ["started"]


def test_chips_that_a_script_shares_are_not_waited_for(
    root: Path, log: Path, hold: Callable[..., subprocess.Popen[bytes]]
) -> None:
    hold(root / "dev/accel0")
    chips.await_free(replace(SPEC, environment={"TPU_VISIBLE_CHIPS": "1"}), str(log))
    assert "is held by" in log.read_text()
    assert len(log.read_text().splitlines()) == 1


def test_who_has_locked_the_lock_file_holds_the_chips(root: Path, log: Path) -> None:
    """A container's device files may not be seen, and another user's descriptors are not."""
    lock = root / "tmp/libtpu_lockfile"
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        chips.await_free(SPEC, str(log))
    assert log.read_text().startswith(f"[tpuctl] /tmp/libtpu_lockfile is held by process {os.getpid()} (")


def test_processes_of_other_users_are_asked_for_as_root(
    root: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    hold: Callable[..., subprocess.Popen[bytes]],
) -> None:  # fmt: skip
    holder = hold(root / "dev/accel1")
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    sudo.chmod(0o700)
    opened = processes.open_files
    hidden = {holder.pid: forbidden}
    monkeypatch.setattr(processes, "open_files", lambda pid: hidden.get(pid, opened)(pid))
    monkeypatch.setenv("PATH", f"{tmp_path}/nowhere")
    chips.await_free(SPEC, str(log))
    assert not log.exists(), "without sudo nothing is known of it"
    monkeypatch.setenv("PATH", f"{sudo.parent}:/usr/bin:/bin")
    chips.await_free(SPEC, str(log))
    assert log.read_text().startswith(f"[tpuctl] /dev/accel1 is held by process {holder.pid} (")


def test_ten_of_many_that_hold_a_chip_are_named(
    root: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getpid()
    monkeypatch.setattr(chips, "_holders", lambda: dict.fromkeys(range(own, own + 11), "/dev/accel0"))
    monkeypatch.setattr(processes, "name", lambda pid: f"{pid} (caf\udce9)")
    chips.await_free(SPEC, str(log))
    lines = [line for line in log.read_text().splitlines() if "is held by" in line]
    assert [line.split()[6] for line in lines] == [str(pid) for pid in range(own, own + 10)]
    assert lines[0] == f"[tpuctl] /dev/accel0 is held by process {own} (caf?) of {getpass.getuser()}"


def test_the_user_of_a_process_that_has_ended_is_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chips._described(2**22 + 1)[1] == "somebody"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert chips._described(os.getpid())[1] == f"user {os.getuid()}"


def test_a_lock_file_of_another_user_is_deleted_unless_somebody_has_locked_it(
    root: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = root / "tmp/libtpu_lockfile"
    lock.touch()
    chips.await_free(SPEC, str(log))
    assert lock.exists(), "our own can be opened"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        chips._remove_stale_lock(str(log))
        assert lock.exists()
        assert not log.exists()
    monkeypatch.setattr(chips, "LOCKS", "none")
    chips._remove_stale_lock(str(log))
    assert lock.exists(), "who cannot see the locks deletes nothing"
    monkeypatch.undo()
    monkeypatch.setenv("TPUCTL_HOST_ROOT", str(root))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    chips.await_free(SPEC, str(log))
    assert not lock.exists()
    assert log.read_text() == (
        f"[tpuctl] deleted /tmp/libtpu_lockfile of user '{getpass.getuser()}', which no process had locked\n"
    )


def test_one_that_may_not_be_deleted_is_named_with_the_command(
    root: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "tmp/libtpu_lockfile").touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "unlink", forbidden)
    monkeypatch.setenv("PATH", str(root))
    chips._remove_stale_lock(str(log))
    assert log.read_text() == (
        f"[tpuctl] /tmp/libtpu_lockfile is of user '{getpass.getuser()}': if the chips are refused, "
        "run on each host: sudo rm -f /tmp/libtpu_lockfile\n"
    )


def test_device_files_are_waited_for(root: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chips.await_devices(replace(SPEC, chips=2), str(log))
    chips.await_devices(replace(SPEC, chips=0), str(log))
    chips.await_devices(replace(SPEC, chips=4, workers=4), str(log))
    assert not log.exists()
    looks = list[int]()

    def appear(condition: Callable[[], bool], timeout: float) -> bool:
        while not condition():
            looks.append(len(looks))
            (root / f"dev/accel{1 + len(looks)}").touch()
        return True

    monkeypatch.setattr(timing, "wait_until", appear)
    chips.await_devices(replace(SPEC, chips=4), str(log))
    assert looks == [0, 1]
    assert log.read_text() == "[tpuctl] waiting for 2 of 4 TPU device files\n"


def test_a_script_starts_without_them_at_last(root: Path, log: Path) -> None:
    chips.await_devices(replace(SPEC, chips=4), str(log))
    assert log.read_text() == (
        "[tpuctl] waiting for 2 of 4 TPU device files\n"
        "[tpuctl] 2 of 4 TPU device files are there after 0 s: the script starts all the same\n"
    )


def test_a_script_starts_once_its_device_files_are_there(host: Host) -> None:
    """On v5e and later they come after SSH: JAX without them runs on the CPU."""
    devices = sorted(Path(host.environment["TPUCTL_HOST_ROOT"], "dev").glob("accel[0-9]*"))
    devices[0].unlink()
    looks = "import os; print(os.path.exists(os.environ['TPUCTL_HOST_ROOT'] + '/dev/accel0'))"
    waits = f"waiting for 1 of {len(devices)} TPU device files\n".encode()
    with host.supervise(looks, "", chips=len(devices)):
        host.wait_for_output(waits)
        devices[0].touch()
    assert host.log() == b"[tpuctl] " + waits + b"True\n"


def test_libtpu_logs_into_the_folder_of_the_attempt(host: Host) -> None:
    source = "import os; folder = os.environ['TPU_LOG_DIR']; print(folder, os.path.isdir(folder))"
    with host.supervise(source, ""):
        pass
    assert host.log().decode() == f"{host.folder}/tpu_logs True\n"
