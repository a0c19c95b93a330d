"""Writes the JSON report of a program's findings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

SCHEMA = 1
NAME = "findings.json"


class Report:
    """A file that is always complete: each write replaces it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = os.getpid()
        self._failed = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Report:
        """Take the file TPUCTL_SIM_FINDINGS, else one in the folder TPUCTL_REPORT_DIR, else none."""
        if path := environ.get("TPUCTL_SIM_FINDINGS"):
            if "://" in path:
                raise ValueError(f"TPUCTL_SIM_FINDINGS={path} is not a path on this machine.")
            return cls(os.path.abspath(path))
        folder = environ.get("TPUCTL_REPORT_DIR")
        return cls(_unused(folder) if folder else "")

    def write(self, content: Mapping[str, object]) -> None:
        """Write `content`; a file that cannot be written costs one line on stderr, not the program."""
        if not self._path or os.getpid() != self._process:  # a forked child has its parent's findings
            return
        draft = f"{self._path}.{self._process}.part"
        try:
            with open(draft, "w", encoding="utf-8") as stream:
                json.dump({"schema": SCHEMA, **content}, stream, indent=1)
                stream.write("\n")
            os.replace(draft, self._path)
        except OSError as error:
            if not self._failed:
                say(f"[tpu-sim] the findings cannot be written to {self._path}: {error.strerror or error}")
            self._failed = True


def say(line: str) -> None:
    """Write one line to stderr."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed, or none: a daemon
        pass


def _unused(folder: str) -> str:
    """The report's name in `folder`; with this process's number if another program has written one."""
    path = os.path.join(os.path.abspath(folder), NAME)
    return path if not os.path.exists(path) else os.path.join(folder, f"findings-{os.getpid()}.json")
