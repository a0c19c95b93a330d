"""Installs the packages that the script's header requires, unless the host has them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib import metadata
from typing import Sequence

NAME = re.compile(r"\s*([A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?)", re.IGNORECASE)
"""The name at the start of a requirement, as in PEP 508; the laptop has checked the rest."""


class PackageError(Exception):
    """pip could not install what the header requires."""


def ensure(requirements: Sequence[str], folder: str, log: str) -> str:
    """Install what is missing into `folder` and return the folder for PYTHONPATH, or "" if all is present.

    A requirement counts as present when its distribution is installed or a module of its name can be
    found: TPU images bring builds of TensorFlow under other distribution names. pip writes to `log`.
    """
    missing = [requirement for requirement in requirements if not _is_present(requirement)]
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


def _is_present(requirement: str) -> bool:
    match = NAME.match(requirement)
    if not match:
        return False  # a path or an option: pip reads it
    name = match.group(1)
    try:
        metadata.distribution(name)
        return True
    except metadata.PackageNotFoundError:
        return importlib.util.find_spec(name.replace("-", "_").split(".")[0]) is not None
