"""Prepares a host for the script: room on the disk, code, packages, and the user's set-up command."""

from __future__ import annotations

import os

from tpuctl.host import gcs
from tpuctl.host.worker.preparation import bundle, environment, old_runs, packages, setup
from tpuctl.host.worker.records import OWN, Spec

ERRORS = (bundle.BundleError, packages.PackageError, setup.SetupError)
"""What ends the preparation besides GcsError and OSError."""
CODE = "code"
"""The folder of the script inside an attempt's."""


def prepare(bucket: gcs.Bucket, spec: Spec, folder: str, log: str, reports: str) -> str:
    """Prepare an attempt in its `folder` and return the folder of its packages for PYTHONPATH, "" for none.

    The set-up command runs for each attempt: each has a fresh copy of the code. It sees the packages and the
    script's variables. Raises ERRORS, GcsError and OSError.
    """
    old_runs.remove(folder)
    code = os.path.join(folder, CODE)
    bundle.fetch(bucket, spec, code)
    installed = _installed(spec, folder, code, log) if spec.dependencies or spec.requirements else ""
    if spec.setup:
        variables = environment.of_job(spec, installed, reports)
        setup.run(spec.setup, code, variables, log, spec.setup_timeout)
    return installed


def _installed(spec: Spec, folder: str, code: str, log: str) -> str:
    lock = os.path.join(code, spec.requirements) if spec.requirements else ""
    wheelhouse = os.path.join(code, spec.wheelhouse) if spec.wheelhouse else ""
    is_own, root = spec.packages == OWN, packages.root_of(folder)
    return packages.ensure(spec.dependencies, lock, root, log, is_own, wheelhouse, spec.pins)
