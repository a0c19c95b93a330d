"""Tests that a program on a host inherits from a login, not from the simulator's caller."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import paramiko
import pytest

from tests.paths import ROOT
from tests.sim.live_host import USER, User, wait_until
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import PublishedEndpoints

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)
"""SIGHUP by `nohup`, SIGINT and SIGQUIT by a script's `&`, the others by other callers."""
REPORT = """
import json, os, resource, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "ignored": int(status["SigIgn"], 16),
    "blocked": int(status["SigBlk"], 16),
    "umask": int(status["Umask"], 8),
    "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "core file": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in sys.argv[1:]},
    "session": [os.getsid(0), os.getpgid(0)],
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
}))
"""
PROGRAMS = sum(1 << (number - 1) for number in signal.valid_signals())
"""The signals that a program can set; the C library keeps two for itself, which nobody can reset."""
LOWERED = {
    "RLIMIT_CPU": 86_400, "RLIMIT_FSIZE": 1 << 40, "RLIMIT_DATA": 1 << 40, "RLIMIT_AS": 1 << 44,
    "RLIMIT_STACK": 4 << 20,
}  # fmt: skip
"""Soft limits of the simulator's caller."""
PYTHONS_OWN = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
"""Python ignores these in its own process, the one that reports."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublishedEndpoints]:
    """A simulator that was started in every unusual way at once."""
    folder = tmp_path_factory.mktemp("simulator")
    folder.chmod(0o700)
    stray = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(stray, True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tpuctl.sim", "--folder", str(folder), "--idle", "0"],
        cwd="/",
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}/elsewhere", "STRAY": "1", "LD_BIND_NOW": "1"},
        pass_fds=[stray],
        preexec_fn=_unusual,
    )
    os.close(stray)
    try:
        wait_until(lambda: simulator_process.running(folder) or process.poll() is not None, 60)
        endpoints = simulator_process.running(folder)
        assert endpoints is not None
        yield endpoints
    finally:
        process.kill()
        process.wait()
        simulator_process.end_orphans(folder)


def _unusual() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGALRM])
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    for name, soft in LOWERED.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (soft if hard < 0 else min(soft, hard), hard))


@pytest.fixture(scope="module", params=["pipes", "terminal"])
def report(request: pytest.FixtureRequest, served: PublishedEndpoints, user: User) -> Mapping[str, Any]:
    """What a program on a host says of itself, without and with a terminal."""
    node = user.create(served.tpu_grpc, f"on-{request.param}")
    address, port = json.loads(Path(served.hosts_file).read_text())[node.network_endpoints[0].ip_address]
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect(address, port, USER, key_filename=str(user.key), allow_agent=False)
        command = f"python3 -I -c {shlex.quote(REPORT)} {' '.join(LOWERED)}"
        _, output, _ = client.exec_command(command, get_pty=request.param == "terminal", timeout=60)
        return json.loads(output.read())


def test_no_signal_is_ignored_or_blocked(report: Mapping[str, Any]) -> None:
    assert report["ignored"] & PROGRAMS == PYTHONS_OWN
    assert report["blocked"] & PROGRAMS == 0


def test_umask_and_limits_are_those_of_a_login(report: Mapping[str, Any]) -> None:
    assert report["umask"] == 0o022
    assert report["open files"] == 1024
    assert report["core file"] == 0
    limits = {name: tuple(limit) for name, limit in report["limits"].items()}
    stack, hard = limits.pop("RLIMIT_STACK")
    assert stack == (8 << 20 if hard < 0 else min(8 << 20, hard))
    assert all(soft == hard for soft, hard in limits.values()), limits


def test_it_is_in_a_session_of_its_own(report: Mapping[str, Any]) -> None:
    assert os.getsid(0) not in report["session"]
    assert report["session"][0] == report["session"][1]


def test_no_file_of_the_simulator_is_open(report: Mapping[str, Any]) -> None:
    assert report["descriptors"] == [0, 1, 2]


def test_the_working_folder_is_the_home(report: Mapping[str, Any]) -> None:
    assert report["folder"] == report["environment"]["HOME"]


def test_no_variable_of_the_simulators_own_is_there(report: Mapping[str, Any]) -> None:
    environment = report["environment"]
    assert not {"STRAY", "LD_BIND_NOW"} & environment.keys()
    assert "/elsewhere" not in environment["PYTHONPATH"]
