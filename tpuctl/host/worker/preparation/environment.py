"""Builds the environment of a script on a host.

TPUCTL_DATA_DIR, TPUCTL_ACCELERATOR, those of slices and the TPU_NAME of several hosts come from the laptop,
in `Spec.environment`: flows/runs/submission sets them.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import Dict, NamedTuple

from tpuctl.host.worker.records import COMMAND, SCRIPT, SHELL, Spec

FOLDERS = (
    ("TPUCTL_MODEL_DIR", "AIP_MODEL_DIR", "outputs"),
    ("TPUCTL_CHECKPOINT_DIR", "AIP_CHECKPOINT_DIR", "checkpoints"),
    ("TPUCTL_TENSORBOARD_DIR", "AIP_TENSORBOARD_LOG_DIR", "tensorboard"),
)
"""Our variable, Vertex AI's variable, the folder of the run that both name."""


class Prepared(NamedTuple):
    """What the program runs with on this host."""

    python: str = ""
    """Interpreter in a virtual environment without the image's packages; empty for the image's own."""
    packages: str = ""
    """Folder of what was installed for it; empty for none."""

    @property
    def interpreter(self) -> str:
        """The Python that runs it."""
        return self.python or sys.executable


COMMANDS = "bin"
"""Folder beside the code with commands `python` and `python3`: the image has no `python`."""


def write_commands(code: str, python: str) -> None:
    """Write the commands that start an interpreter by its usual names."""
    folder = os.path.join(os.path.dirname(code), COMMANDS)
    os.makedirs(folder, exist_ok=True)
    for name in ("python", "python3"):
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755), "w") as stream:
            stream.write('#!/bin/sh\nexec %s "$@"\n' % shlex.quote(python))


def of_job(spec: Spec, prepared: Prepared, reports: str = "", code: str = "") -> Dict[str, str]:
    """Return the script's environment: the host's own, the run's folders, and the user's variables.

    `reports` and `code` are folders on this host; reports go into the bucket when the script ends. Modules
    of a project are found from every folder of it, in a folder `src` as well.
    """
    result = dict(os.environ)
    result.update(
        TPUCTL_RUN=spec.run,
        TPUCTL_ATTEMPT=str(spec.attempt),
        TPUCTL_WORKER=str(spec.worker),
        TPUCTL_WORKERS=str(spec.workers),
        PYTHONUNBUFFERED="1",
    )
    for variable, vertex, folder in FOLDERS:
        result[variable] = result[vertex] = "gs://%s/runs/%s/%s" % (spec.bucket, spec.run, folder)
    if reports:
        result["TPUCTL_REPORT_DIR"] = reports
        result.setdefault("TPU_LOG_DIR", tpu_logs(reports))
    if spec.framework == "tensorflow" and spec.workers == 1:
        result["TPU_NAME"] = "local"  # so that TPUClusterResolver() on one host calls no API
    if spec.framework == "tensorflow":
        # Its start-up logs a dozen long lines of level INFO, which is 0, before the script's first one.
        result.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    result.update(spec.environment)
    programs = []
    if code and spec.kind in (SHELL, COMMAND):
        programs += [os.path.join(os.path.dirname(code), COMMANDS)]
        programs += [os.path.join(prepared.packages, "bin")] if prepared.packages else []
    if prepared.python:
        programs.append(os.path.dirname(prepared.python))
        result["VIRTUAL_ENV"] = os.path.dirname(programs[-1])
    if programs:
        result["PATH"] = os.pathsep.join([*programs, result.get("PATH", os.defpath)])
    is_lone = spec.kind == SCRIPT and not spec.directory and "/" not in spec.script
    source = os.path.join(code, "src")
    modules = [code if code and not is_lone else "", source if code and os.path.isdir(source) else ""]
    path = [prepared.packages, result.get("PYTHONPATH", ""), *modules]
    if any(path):
        result["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return result


def tpu_logs(reports: str) -> str:
    """Return the folder of libtpu's own logs beside that of the reports.

    The default is /tmp/tpu_logs, which the first user of a host owns: no other user's libtpu can write there.
    """
    return os.path.join(os.path.dirname(reports), "tpu_logs")
