"""Runs the program as a process group: stops it by SIGTERM, kills it if it ignores that."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Dict, List, Mapping, Optional, Sequence

from tpuctl.host import timing
from tpuctl.host.worker.attempt_lock import hold
from tpuctl.host.worker.records import (
    CELLS_FILE,
    CODE,
    COMMAND,
    EXECUTED,
    MODULE,
    NOTEBOOK,
    PLACEHOLDER,
    PLACEHOLDERS,
    SHELL,
    Spec,
)

STOP_CODES = tuple(code for number in (signal.SIGTERM, signal.SIGKILL) for code in (-number, 128 + number))
"""Return codes of a script that was stopped from outside, or that reports so itself."""


def command(spec: Spec, variables: Mapping[str, str], python: str) -> List[str]:
    """Return what is started in the working folder; arguments have variables in place of their names."""
    arguments = [_filled(text, variables) for text in spec.arguments]
    if spec.kind == COMMAND:
        return [_filled(spec.script, variables), *arguments]
    if spec.kind == MODULE:
        return [python, "-u", "-m", spec.script, *arguments]
    script = os.path.relpath(spec.script, spec.directory or ".")
    if spec.kind == NOTEBOOK:
        code = os.path.join(CODE, spec.directory)
        written = os.path.join(EXECUTED, os.path.basename(spec.script))
        program, target = os.path.relpath(CELLS_FILE, code), os.path.relpath(written, code)
        return [python, "-u", program, script, target, *arguments]
    start = ["/bin/bash", "--"] if spec.kind == SHELL else [python, "-u", "--"]
    return [*start, script, *arguments]


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """Return text with the values of the variables that it names in braces."""
    return PLACEHOLDER.sub(
        lambda match: variables[match[1]] if match[1] in PLACEHOLDERS and match[1] in variables else match[0],
        text,
    )


class Script:
    """One running script; its output goes to the end of the file `log`."""

    def __init__(
        self, command: Sequence[str], folder: str, environment: Dict[str, str], log: str, lock: str
    ) -> None:
        """Start it in `folder`; it holds the file `lock` as long as it lives."""
        descriptor = hold(lock)
        try:
            with open(log, "ab") as output:
                os.utime(output.fileno())  # what was printed before was not by the script
                self._process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[descriptor] if descriptor >= 0 else [],
                )
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        self._stop_sent = 0.0

    @property
    def pid(self) -> int:
        """The process's id on this host."""
        return self._process.pid

    def poll(self) -> Optional[int]:
        """Return the return code, negative for a signal, or None while the script runs."""
        return self._process.poll()

    def stop(self, *, is_signalled: bool = False, grace: Optional[float] = None) -> None:
        """Send SIGTERM to the script and its children, unless it `is_signalled`, as by a host that stops.

        Called again after `grace` seconds, by default `timing.STOP_GRACE`, send SIGKILL.
        """
        grace = timing.STOP_GRACE if grace is None else grace
        if not self._stop_sent:
            self._stop_sent = time.monotonic()
            if not is_signalled:
                self._signal(signal.SIGTERM)
        elif time.monotonic() > self._stop_sent + grace:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


class Sentinel:
    """A process that only a host signals that stops: it signals all, the script too.

    It ends with the supervisor, as nothing holds its input open any more.
    """

    def __init__(self) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        try:
            self._process = subprocess.Popen(
                ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:  # without it a script may get SIGTERM twice
            pass

    @property
    def pid(self) -> int:
        """Its id on this host; 0 without it."""
        return self._process.pid if self._process else 0

    @property
    def is_signalled(self) -> bool:
        """Whether it has ended."""
        return self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
