"""Packs the worker program, copies it to the hosts, and starts and stops it there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpuctl.errors import HostError, TpuctlError
from tpuctl.flows.hosts.program_zip import program
from tpuctl.nodes import Node
from tpuctl.parallel import fanout, values
from tpuctl.worker.records import Spec, encode

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

LAUNCH_TIMEOUT = 180.0
"""Seconds for the program's first answer; it gives up by itself after its own START_TIMEOUT."""


def launch_all(ssh: Ssh, node: Node, host_keys: Mapping[int, str], specs: Sequence[Spec]) -> None:
    """Start the program on each spec's worker, at once, or on none: a failure stops those that started.

    Raises the first worker's HostError, with a count of those that failed in its hint.
    """
    program = worker_program()
    launches = fanout(lambda spec: launch(ssh, node, host_keys[spec.worker], program, spec), specs)
    try:
        values(launches)
    except TpuctlError:
        for launched in launches:
            if launched.value:
                worker = launched.item.worker
                stop(ssh, node, worker, host_keys[worker], launched.value)
        raise


def launch(ssh: Ssh, node: Node, host_key: str, program: bytes, spec: Spec) -> int:
    """Copy program and spec to the spec's worker, start the program there, detached, and return its pid.

    Raises HostError that names the worker and the reason.
    """
    folder = f".tpuctl/runs/{spec.run}/{spec.attempt}"
    with ssh.connect(node, spec.worker, host_key) as session:
        # Also a folder of an earlier version becomes private; `mkdir -m` leaves those above it readable.
        private = session.run(["install", "-d", "-m", "700", ".tpuctl", folder])
        if private.exit_code:
            raise HostError(
                f"Worker {spec.worker} cannot make {folder}: {private.stderr.strip()}.",
                hint="Is its disk full?",
            )
        session.put(program, f"{folder}/worker.zip")
        session.put(encode(spec), f"{folder}/spec.json")
        command = ["python3", f"{folder}/worker.zip", "launch", f"{folder}/spec.json"]
        launched = session.run(command, timeout=LAUNCH_TIMEOUT)
    return _read_pid(launched.stdout, launched.stderr, spec.worker)


def stop(ssh: Ssh, node: Node, worker: int, host_key: str, pid: int) -> None:
    """Stop a program that `launch` started; a worker that cannot be reached is skipped."""
    try:
        with ssh.connect(node, worker, host_key) as session:
            session.run(["kill", "-TERM", str(pid)])
    except HostError:
        pass


def worker_program() -> bytes:
    """Return the program for the hosts as a zip that `python3` runs; the same source gives the same bytes."""
    return program("worker")


def _read_pid(out: str, err: str, worker: int) -> int:
    """Return the pid in the program's answer; raises HostError with its reason or the last line of stderr."""
    try:
        answer = json.loads(out.strip().splitlines()[-1])
        return int(answer["pid"])
    except (IndexError, ValueError):
        reason = (err.strip().splitlines() or ["no answer"])[-1]
    except KeyError:
        reason = answer["error"]
    raise HostError(
        f"Worker {worker} could not start the script: {reason}.", hint="Check the host's python3."
    )
