"""What the script's header asks for: present on the host, or installed beside the run."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib import metadata
from typing import List


class PackageError(Exception):
    """pip could not install what the header asks for."""


def ensure(requirements: List[str], folder: str, log: str) -> str:
    """Install what is missing into `folder` and return the folder for PYTHONPATH, or "" when nothing was.

    A requirement counts as present when its distribution is installed or a module of its name can be
    found: TPU images bring builds of TensorFlow under other distribution names. pip writes to `log`.
    """
    missing = [one for one in requirements if not _present(one)]
    if not missing:
        return ""
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--target", folder]
    with open(log, "ab") as stream:
        stream.write(("[tpuctl] installing %s\n" % " ".join(missing)).encode())
        stream.flush()
        code = subprocess.call(command + missing, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    if code:
        raise PackageError(
            "pip could not install %s (exit code %d, see the log)" % (", ".join(missing), code)
        )
    return os.path.abspath(folder)


def _present(requirement: str) -> bool:
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].strip("._-")
    if not name:
        return False  # a path or the like: pip knows what to do with it
    try:
        metadata.distribution(name)
        return True
    except metadata.PackageNotFoundError:
        return importlib.util.find_spec(name.replace("-", "_").split(".")[0]) is not None
