"""Runs the user's set-up command on a host, before the script."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Mapping

from tpuctl.host import timing


class SetupError(Exception):
    """The command failed; the text says how."""


def run(command: str, folder: str, environment: Mapping[str, str], log: str, timeout: float) -> None:
    """Run a command for sh in a folder, up to its first failure; its output goes to the end of `log`.

    It and its children end with the limit in seconds, and with what interrupts this. Raises SetupError.
    """
    with open(log, "ab") as output:
        output.write(b"[tpuctl] running the setup command\n")
        output.flush()
        process = subprocess.Popen(
            ["/bin/sh", "-e", "-c", command], cwd=folder, env=dict(environment), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        raise SetupError("the setup command did not end in %d s (see the log)" % timeout) from None
    except BaseException:
        _end(process)
        raise
    if code < 0:
        raise SetupError("the setup command was ended by %s (see the log)" % signal.Signals(-code).name)
    if code:
        raise SetupError("the setup command failed with exit code %d (see the log)" % code)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command with its children: by SIGTERM, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timing.SETUP_GRACE)
        except subprocess.TimeoutExpired:
            pass
