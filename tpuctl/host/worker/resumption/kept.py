"""Keeps on a host what a run needs after a reboot: the spec of its attempt, and the command to resume it."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Optional

from tpuctl.host.worker.records import Spec, encode, read_spec

SPEC_FILE = "resume.json"
"""In the attempt's folder: the spec. Only its owner can read it; its one secret is the attempt's key."""
COMMAND_FILE = "resume"
"""Beside it, for sh: what the crontab runs at each boot."""
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "USER")
"""Variables of the login that cron does not set alike."""


def keep(spec: Spec, folder: str) -> None:
    """Write both files of an attempt, the command last; raises OSError."""
    folder = os.path.abspath(folder)
    _write_kept(os.path.join(folder, SPEC_FILE), encode(spec))
    _write_kept(os.path.join(folder, COMMAND_FILE), _command(folder).encode())


def read(folder: str) -> Optional[Spec]:
    """Return the spec that is kept in an attempt's folder; None where the run does not resume by itself."""
    try:
        with open(os.path.join(folder, SPEC_FILE), encoding="utf-8") as stream:
            spec = read_spec(stream)
    except (OSError, ValueError):
        return None
    return spec if spec.resumption else None


def forget(folder: str) -> None:
    """Delete both files: the attempt has ended for good, or another has followed."""
    for name in (COMMAND_FILE, SPEC_FILE):
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass


def _command(folder: str) -> str:
    lines = ["cd %s" % shlex.quote(os.path.expanduser("~"))]
    lines += [
        "export %s=%s" % (name, shlex.quote(os.environ[name])) for name in PASSED_ON if name in os.environ
    ]
    program = [sys.executable, os.path.join(folder, "worker.zip"), "resume", folder]
    log = shlex.quote(os.path.join(folder, "supervisor.log"))
    lines.append("exec %s </dev/null >>%s 2>&1" % (" ".join(map(shlex.quote, program)), log))
    return "\n".join(lines) + "\n"


def _write_kept(path: str, data: bytes) -> None:
    part = path + ".part"
    with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())  # a host that dies must not keep a name without its content
    os.replace(part, path)
