"""The program for the hosts: packed, put there, started."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

from tpuctl import __version__
from tpuctl.errors import HostError
from tpuctl.nodes import Node

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

LAUNCH_TIMEOUT = 180.0

Spec = Mapping[str, object]
"""What the program is told, one worker's part of one attempt; its fields are in tpuctl/worker/spec.py."""


def launch(ssh: Ssh, node: Node, host_key: str, program: bytes, spec: Spec) -> int:
    """Put program and spec on one host, start the program there, detached, and return its pid.

    Raises HostError that names the worker and what it said.
    """
    folder = f".tpuctl/runs/{spec['run']}/{spec['attempt']}"
    worker = int(str(spec["worker"]))
    with ssh.connect(node, worker, host_key) as session:
        made = session.run(["mkdir", "-p", "-m", "700", folder])
        if made.code:
            raise HostError(
                f"Worker {worker} cannot make {folder}: {made.err.strip()}.", hint="Is its disk full?"
            )
        session.put(program, f"{folder}/worker.zip")
        session.put(json.dumps(spec).encode(), f"{folder}/spec.json")
        done = session.run(
            ["python3", f"{folder}/worker.zip", "launch", f"{folder}/spec.json"], timeout=LAUNCH_TIMEOUT
        )
    return _pid(done.out, done.err, worker)


def stop(ssh: Ssh, node: Node, worker: int, host_key: str, pid: int) -> None:
    """Tell a program that `launch` started to end; a worker that cannot be reached cannot be told."""
    try:
        with ssh.connect(node, worker, host_key) as session:
            session.run(["kill", "-TERM", str(pid)])
    except HostError:
        pass


def worker_program() -> bytes:
    """Return the program for the hosts as a zip that `python3` runs; the same source gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "__main__.py", ENTRY)
        _write(archive, "tpuctl/__init__.py", f'__version__ = "{__version__}"\n'.encode())
        for name, source in _sources():
            _write(archive, f"tpuctl/worker/{name}", source)
    return buffer.getvalue()


ENTRY = b"import sys\nfrom tpuctl.worker.main import main\nsys.exit(main(sys.argv[1:]))\n"


def _sources() -> list[tuple[str, bytes]]:
    folder = resources.files("tpuctl").joinpath("worker")
    return sorted((one.name, one.read_bytes()) for one in folder.iterdir() if one.name.endswith(".py"))


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def _pid(out: str, err: str, worker: int) -> int:
    try:
        answer = json.loads(out.strip().splitlines()[-1])
        return int(answer["pid"])
    except (IndexError, ValueError):
        said = err.strip().splitlines() or ["nothing"]
        text = said[-1]
    except KeyError:
        text = answer["error"]
    raise HostError(f"Worker {worker} could not start the script: {text}.", hint="Check the host's python3.")
