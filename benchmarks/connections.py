"""`true` on 8, 64 and 256 simulated hosts beside pdsh, fabric and a plain pool; up, submit, cancel on 64."""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import fabric
import paramiko
import psutil

from benchmarks.measure import Row, show
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.nodes import Node

TYPES = {8: "v3-64", 64: "v3-512", 256: "v3-2048"}
"""Number of hosts -> type."""
TURNS = 5
COMMAND_TURNS = 3
ZONE = "europe-west4-a"
WIDTH = 32
"""Connections at once, as pdsh has by default."""
OURS, PDSH, FABRIC, PLAIN = "tpuctl's pool", "pdsh", "fabric's ThreadingGroup", "a plain paramiko pool"
JOB = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nprint("hello")\n'
WAITING_JOB = f"{JOB}import time\ntime.sleep(3600)\n"
RUNNING_TIMEOUT = 300.0
"""Seconds within which every worker has printed its line."""


@dataclass(frozen=True)
class Turn:
    """Seconds of a run: wall, CPU of the client, of the simulator itself, and of its hosts' programs."""

    wall: float
    client: float
    simulator: float
    programs: float


class Meter:
    """Measures work of this process, of its children and of a simulator."""

    def __init__(self, pid: int) -> None:
        self._own = psutil.Process()
        self._simulator = psutil.Process(pid)

    def measure(self, work: Callable[[], object]) -> Turn:
        """Do the work once."""
        began, before = time.perf_counter(), self._cpu()
        work()
        wall, after = time.perf_counter() - began, self._cpu()
        return Turn(wall, *(later - earlier for later, earlier in zip(after, before, strict=True)))

    def _cpu(self) -> tuple[float, float, float]:
        own, server = self._own.cpu_times(), self._simulator.cpu_times()
        client = time.process_time() + own.children_user + own.children_system
        return client, server.user + server.system, server.children_user + server.children_system


def main() -> None:
    """Measure and report."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as folder:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TPUCTL_")}
        os.environ.clear()
        os.environ.update({**inherited, "TPUCTL_STATE": folder, "TPUCTL_TARGET": "sim"})
        served = simulator_process.ensure(Path(folder) / "sim")
        try:
            report(measure(Meter(served.pid), Path(folder)))
        finally:
            simulator_process.stop(Path(folder) / "sim")


def measure(meter: Meter, folder: Path) -> dict[str, list[Turn]]:
    """Return the turns of each measurement."""
    script, waiting = folder / "job.py", folder / "waiting.py"
    script.write_text(JOB)
    waiting.write_text(WAITING_JOB)
    turns = commands(meter, script, waiting)
    cloud = connect(load({}))
    try:
        for count, accelerator in TYPES.items():
            tpuctl("up", accelerator, "--name", f"n{count}", "--zone", ZONE, "--yes")
            node = cloud.provider.get_node(cloud.provider.node_id(ZONE, f"n{count}"))
            runners = contestants(cloud, node, folder / "sim/hosts.ssh_config")
            turns |= {f"{name}, {count} hosts": times for name, times in in_turn(meter, runners).items()}
            tpuctl("down", f"n{count}", "--yes")
    finally:
        cloud.close()
    return turns


def commands(meter: Meter, script: Path, waiting: Path) -> dict[str, list[Turn]]:
    """Return the turns of up, submit and cancel on 64 hosts, each from a fresh node.

    The run that is cancelled is the second on its hosts, which have kept the worker program's bytecode.
    """
    names = ("up v3-512", "submit, 64 hosts", "submit once more, 64 hosts", "cancel, 64 hosts")
    turns: dict[str, list[Turn]] = {f"tpuctl {name}": [] for name in names}
    for number in range(COMMAND_TURNS):
        node, run = f"u{number}", f"r{number}"
        up = partial(tpuctl, "up", TYPES[64], "--name", node, "--zone", ZONE, "--framework", "jax", "--yes")
        turns["tpuctl up v3-512"].append(meter.measure(up))
        submit = partial(tpuctl, "submit", str(script), "--name", run, "--tpu", node)
        turns["tpuctl submit, 64 hosts"].append(meter.measure(submit))
        tpuctl("logs", "-f", run)
        again = partial(tpuctl, "submit", str(waiting), "--name", f"{run}-waiting", "--tpu", node)
        turns["tpuctl submit once more, 64 hosts"].append(meter.measure(again))
        await_lines(f"{run}-waiting", 64)
        cancel = partial(tpuctl, "cancel", f"{run}-waiting", "--yes")
        turns["tpuctl cancel, 64 hosts"].append(meter.measure(cancel))
        tpuctl("down", node, "--yes")
    return turns


def await_lines(run: str, count: int) -> None:
    """Return once so many workers of a run have printed their line."""
    deadline = time.monotonic() + RUNNING_TIMEOUT
    while tpuctl("logs", run).count("hello") < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{run}: not every worker runs within {RUNNING_TIMEOUT:.0f} s")
        time.sleep(1)


def tpuctl(*arguments: str) -> str:
    """Run a command, which has to succeed, and return its output."""
    command = [sys.executable, "-m", "tpuctl", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr}")
    return result.stdout


def in_turn(meter: Meter, runners: Mapping[str, Callable[[], None]]) -> dict[str, list[Turn]]:
    """Run each in turn, so that a slow minute affects all of them; the first turn does not count."""
    turns: dict[str, list[Turn]] = {name: [] for name in runners}
    for turn in range(TURNS + 1):
        for name, run in runners.items():
            measured = meter.measure(run)
            if turn:
                turns[name].append(measured)
    return turns


def contestants(cloud: Cloud, node: Node, ssh_config: Path) -> dict[str, Callable[[], None]]:
    """Return what runs `true` on every host of a node, from connecting to the end of the connections."""
    table = json.loads(Path(cloud.endpoints.hosts_file).read_text())
    endpoints = [(str(table[address][0]), int(table[address][1])) for address in node.addresses]
    user, key = cloud.ssh.user, paramiko.PKey.from_path(cloud.ssh.key)
    host_keys = cloud.provider.host_keys(node.id)

    def ours() -> None:
        with cloud.ssh.pool(node, host_keys.__getitem__) as pool:
            results = pool.run_all(lambda session, worker: session.run(["true"]).exit_code, host_keys)
        assert [result.value for result in results] == [0] * len(endpoints), results

    def fabric_group() -> None:
        config = fabric.Config(overrides={"load_ssh_configs": False})
        options = {"pkey": key, "allow_agent": False, "look_for_keys": False}
        hosts = [f"{host}:{port}" for host, port in endpoints]
        with fabric.ThreadingGroup(*hosts, user=user, config=config, connect_kwargs=options) as group:
            group.run("true", hide=True, in_stream=False)

    def plain(endpoint: tuple[str, int]) -> None:
        with paramiko.Transport(socket.create_connection(endpoint)) as transport:
            transport.start_client()
            transport.auth_publickey(user, key)
            channel = transport.open_session()
            channel.exec_command("true")
            assert channel.recv_exit_status() == 0

    def plain_pool() -> None:
        with ThreadPoolExecutor(WIDTH) as pool:
            list(pool.map(plain, endpoints))

    runners = {OURS: ours, PLAIN: plain_pool, FABRIC: fabric_group}
    if shutil.which("pdsh"):
        options = (
            f"-F {ssh_config} -i {cloud.ssh.key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        )
        environment = {**os.environ, "PDSH_SSH_ARGS_APPEND": options}
        command = ["pdsh", "-S", "-R", "ssh", "-l", user, "-w", ",".join(node.addresses), "true"]
        runners[PDSH] = lambda: _silently(command, environment)
    return runners


def _silently(command: list[str], environment: Mapping[str, str]) -> None:
    subprocess.run(command, env=dict(environment), capture_output=True, check=True)


def report(turns: Mapping[str, list[Turn]]) -> None:
    """Print JSON on stdout and a table on stderr."""
    content = {
        "rows": [asdict(_row(name, times)) for name, times in turns.items()],
        "turns": {name: [asdict(turn) for turn in times] for name, times in turns.items()},
    }
    lines = [_line(name, times) for name, times in turns.items()]
    notes = [_against_best(count, turns) for count in TYPES]
    notes.append("CPU: of the client, of the simulator itself, of the programs on its hosts that have ended")
    if not shutil.which("pdsh"):
        notes.append("pdsh is not installed: no comparison")
    show("connections", content, lines, notes)


def _row(name: str, turns: list[Turn]) -> Row:
    return Row(name, _median(turns, "wall"), _median(turns, "client"), len(turns))


def _line(name: str, turns: list[Turn]) -> str:
    cpu = " + ".join(f"{_median(turns, part):5.2f}" for part in ("client", "simulator", "programs"))
    return f"  {name:<40} {_median(turns, 'wall'):6.2f} s wall {cpu} s CPU"


def _median(turns: list[Turn], part: str) -> float:
    return statistics.median(float(getattr(turn, part)) for turn in turns)


def _against_best(count: int, turns: Mapping[str, list[Turn]]) -> str:
    """Compare our wall time with the best peer's, turn by turn."""
    ours = turns[f"{OURS}, {count} hosts"]
    peers = {
        name: times for name, times in turns.items() if name.endswith(f", {count} hosts") and times != ours
    }
    best = min((name for name in peers if name.split(",")[0] in (PDSH, FABRIC, PLAIN)),
               key=lambda name: _median(peers[name], "wall"))  # fmt: skip
    ratios = sorted(mine.wall / theirs.wall for mine, theirs in zip(ours, peers[best], strict=True))
    return (
        f"{count} hosts: {statistics.median(ratios):.2f} x the time of the best, {best.split(',')[0]} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}; target: 1 at most)"
    )


if __name__ == "__main__":
    main()
