"""Runs the worker program: `launch` detaches it and answers, `supervise` runs detached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import List, Mapping

from tpuctl.worker import timing
from tpuctl.worker.records import load_spec
from tpuctl.worker.supervisor import STARTED, Supervisor


def main(arguments: List[str]) -> int:
    """Run `launch SPEC` or `supervise SPEC`; the folder of SPEC is the attempt's folder on this host."""
    command, path = arguments
    if command == "launch":
        return launch(path)
    Supervisor(load_spec(path), os.path.dirname(os.path.abspath(path))).run()
    return 0


def launch(path: str) -> int:
    """Start the supervisor detached and print one line of JSON: its pid, or why it did not start."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.close(os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return _answer({"error": "this attempt was started on this host before"}, 1)
    log = os.path.join(folder, "supervisor.log")
    with open(log, "ab") as stream:
        process = subprocess.Popen(
            [sys.executable, sys.argv[0], "supervise", path],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            close_fds=True,
        )
    return _await_start(process, os.path.join(folder, STARTED), log)


def _await_start(process: "subprocess.Popen[bytes]", started: str, log: str) -> int:
    """Wait until the first status is in the bucket: from then on the bucket shows everything else."""

    def started_or_ended() -> bool:
        return os.path.exists(started) or process.poll() is not None

    timing.wait_until(started_or_ended, timing.START_TIMEOUT, interval=0.05)
    if os.path.exists(started):
        return _answer({"pid": process.pid}, 0)
    process.kill()
    with open(log, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().strip().splitlines() or ["no answer in %d s" % timing.START_TIMEOUT]
    return _answer({"error": lines[-1]}, 1)


def _answer(content: Mapping[str, object], code: int) -> int:
    print(json.dumps(content), flush=True)
    return code
