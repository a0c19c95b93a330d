"""sim start, stop, status, reset and logs, with a simulator in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator.process import is_locked
from tpuctl.config import load
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts.programs.processes import snapshot, world_mark

Tpuctl = Callable[..., CommandResult]


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of a simulator that is gone after the test."""
    place = tmp_path / "state" / "sim"
    yield place
    simulator_process.reset(place)
    assert not host_processes(place)


def host_processes(folder: Path) -> list[int]:
    mark = world_mark(folder / "hosts")
    return [process.pid for process in snapshot() if process.mark.startswith(mark)]


def is_stopped(folder: Path) -> bool:
    return simulator_process.running(folder) is None


def kill(folder: Path) -> None:
    """Kill the simulator, and wait until its lock is free."""
    endpoints = simulator_process.running(folder)
    assert endpoints
    os.kill(endpoints.pid, signal.SIGKILL)
    poll(lambda: is_stopped(folder) or None, awaiting="its end", timeout=60, backoff=Backoff(0.02, 0.1))


@pytest.fixture
def busy_host(folder: Path, tpuctl) -> Path:
    """A node with two programs on its host, one of them detached; their simulator has been killed."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    key = load({}).require("ssh_key")
    user = load({}).require("ssh_user")
    address = tpuctl("ls", "--json").json["nodes"][0]["addresses"][0]
    ssh = ["ssh", "-F", str(folder / "hosts.ssh_config"), "-i", key, "-l", user]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    command = "nohup setsid sleep 3600 > out 2>&1 < /dev/null & exec sh -c 'sleep 3600 >/dev/null 2>&1 &'"
    subprocess.run([*ssh, *options, address, command], check=True, timeout=60)
    poll(
        lambda: len(host_processes(folder)) >= 2 or None,
        awaiting="two programs",
        timeout=60,
        backoff=Backoff(0.02),
    )
    kill(folder)
    assert len(host_processes(folder)) >= 2, "programs keep running without the simulator, as they should"
    return folder


def test_hosts_are_reached_where_the_state_folder_is_relative(
    home: Path, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs on hosts have other working folders: no host answered over SSH."""
    monkeypatch.setenv("TPUCTL_STATE", "state")
    simulator = RunningSimulator(Path("state/sim"))
    try:
        assert simulator.simulator.folder.is_absolute()
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
        assert tpuctl("exec", "n1", "--", "pwd").out.startswith(str(simulator.simulator.folder / "hosts"))
    finally:
        simulator.close()


def test_stop_ends_what_a_killed_simulator_left(busy_host: Path, tpuctl) -> None:
    count = len(host_processes(busy_host))
    result = tpuctl("sim", "stop")
    assert result.code == 0
    assert result.err.splitlines() == [
        "The simulator was not running.",
        f"It had been killed: {count} programs still running on its hosts ended.",
    ]
    assert not host_processes(busy_host)
    assert tpuctl("sim", "stop").err == "The simulator was not running.\n"
    assert [node["name"] for node in tpuctl("ls", "--json").json["nodes"]] == ["n1"], "nodes stay"


def test_reset_ends_them_too_and_keeps_nothing(busy_host: Path, tpuctl) -> None:
    assert tpuctl("sim", "reset").code == 10, "it asks, and there is no terminal"
    assert host_processes(busy_host)
    result = tpuctl("sim", "reset", "--yes")
    assert result.code == 0, result.err
    assert f"everything in {busy_host}" in result.err
    assert not host_processes(busy_host)
    assert {path.name for path in busy_host.iterdir()} == {"simulator.lock", "starting.lock"}
    assert tpuctl("ls", "--json").json["nodes"] == []


def test_reset_stops_a_running_simulator(folder: Path, tpuctl) -> None:
    assert tpuctl("sim", "start").code == 0
    assert tpuctl("sim", "reset", "-y").err.endswith("The simulator has stopped, and its state is deleted.\n")
    assert tpuctl("sim", "status", "--json").json["running"] is False
    assert not is_locked(folder / "simulator.lock")


def test_reset_of_nothing_says_so(home: Path, tpuctl) -> None:
    assert tpuctl("sim", "reset").err == "The simulator has no state.\n"


def test_reset_says_what_cannot_be_deleted(folder: Path, tpuctl, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gcs").mkdir(parents=True)

    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("tpuctl.cloud.simulator.process.shutil.rmtree", fail)  # root may delete anything
    result = tpuctl("sim", "reset", "--yes")
    assert result.code == 8
    assert f"{folder / 'gcs'} cannot be deleted: Permission denied." in result.err
    monkeypatch.undo()
    monkeypatch.setenv("TPUCTL_STATE", str(folder.parent))


def test_logs_show_what_went_wrong(folder: Path, tpuctl) -> None:
    assert "nothing went wrong" in tpuctl("sim", "logs").err
    assert tpuctl("sim", "start").code == 0
    with (folder / "simulator.log").open("a") as log:
        log.write("one\ntwo\nthree\nhalf")
    assert tpuctl("sim", "logs", "--last", "2").out == "two\nthree\n"
    assert tpuctl("sim", "logs", "--tail", "1").out == "three\n"
    assert tpuctl("sim", "logs").out == "one\ntwo\nthree\n"


def test_ctrl_c_is_an_interruption_also_without_a_terminal(folder: Path, tpuctl) -> None:
    assert tpuctl("sim", "start").code == 0
    (folder / "simulator.log").write_text("one\n")
    command = [str(Path(sys.executable).parent / "tpuctl"), "sim", "logs", "--follow"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as following:
        assert following.stdout
        assert following.stdout.readline() == "one\n"
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=60)
    assert (following.returncode, err) == (130, "\nInterrupted.\n")


def test_logs_are_followed_until_the_simulator_stops(folder: Path, tpuctl) -> None:
    assert tpuctl("sim", "start").code == 0
    command = [str(Path(sys.executable).parent / "tpuctl"), "sim", "logs", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        with (folder / "simulator.log").open("a") as log:
            log.write("one\n")
        assert following.stdout.readline() == "one\n"
        assert tpuctl("sim", "stop").code == 0
        assert following.wait(60) == 0


def test_a_long_log_is_put_aside_by_the_next_start(folder: Path, tpuctl) -> None:
    folder.mkdir(parents=True)
    (folder / "simulator.log").write_bytes(b"x" * ((8 << 20) + 1))
    assert tpuctl("sim", "start").code == 0
    assert "x" * 9 not in (folder / "simulator.log").read_text()  # a slow machine may be warned of there
    assert (folder / "simulator.log.1").stat().st_size == (8 << 20) + 1


def test_its_files_are_private_under_any_umask(folder: Path, tpuctl) -> None:
    """Whoever could write to the state folder could put another simulator in the place of this one."""
    earlier = os.umask(0)
    try:
        assert tpuctl("up", "v3-8", "--yes").code == 0
    finally:
        os.umask(earlier)
    folders = (folder.parent, folder, folder.parent / "ssh")
    assert [oct(place.stat().st_mode & 0o777) for place in folders] == ["0o700"] * 3
    readable = [path.name for path in folder.iterdir() if path.is_file() and path.stat().st_mode & 0o077]
    assert readable == []


def test_a_simulator_that_runs_keeps_its_setting(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    assert tpuctl("sim", "start", "--egress", "pass", "--json").json["egress"] == "pass"
    refused = tpuctl("sim", "start", "--egress", "refuse")
    assert refused.code == 4
    assert "runs already, with --egress pass" in refused.err
    assert tpuctl("sim", "status", "--json").json["external_ips"]
    refused = tpuctl("sim", "start", "--no-external-ips")
    assert refused.code == 4
    assert "runs already, and gives external addresses" in refused.err
