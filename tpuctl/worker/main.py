"""The two ways to call the program on the host: launch (detach and answer), supervise (the detached part)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, Dict, List

from tpuctl.worker.spec import load
from tpuctl.worker.supervisor import STARTED, Supervisor

START_TIMEOUT = 120.0


def main(arguments: List[str]) -> int:
    """Run `launch SPEC` or `supervise SPEC`; the folder of SPEC is the attempt's folder on this host."""
    command, path = arguments
    if command == "launch":
        return launch(path)
    Supervisor(load(path), os.path.dirname(os.path.abspath(path))).run()
    return 0


def launch(path: str) -> int:
    """Start the supervisor detached and print one line of JSON: its pid, or why it did not start."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.close(os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return _answer({"error": "this attempt was started on this host before"}, 1)
    diary = os.path.join(folder, "supervisor.log")
    with open(diary, "ab") as stream:
        process = subprocess.Popen(
            [sys.executable, sys.argv[0], "supervise", path],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            close_fds=True,
        )
    return _await(process, os.path.join(folder, STARTED), diary)


def _await(process: "subprocess.Popen[bytes]", started: str, diary: str) -> int:
    """Wait until the first status is in the bucket: from then on the bucket tells the rest."""
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end:
        ended = process.poll() is not None  # asked first: its last deed may have been the file
        if os.path.exists(started):
            return _answer({"pid": process.pid}, 0)
        if ended:
            break
        time.sleep(0.05)
    process.kill()
    with open(diary, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().strip().splitlines() or ["no word from it in %d s" % START_TIMEOUT]
    return _answer({"error": lines[-1]}, 1)


def _answer(content: Dict[str, Any], code: int) -> int:
    print(json.dumps(content), flush=True)
    return code
