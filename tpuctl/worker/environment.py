"""What a job finds in its environment."""

from __future__ import annotations

import os
from typing import Dict

from tpuctl.worker.spec import Spec

FOLDERS = (
    ("TPUCTL_MODEL_DIR", "AIP_MODEL_DIR", "outputs"),
    ("TPUCTL_CHECKPOINT_DIR", "AIP_CHECKPOINT_DIR", "checkpoints"),
    ("TPUCTL_TENSORBOARD_DIR", "AIP_TENSORBOARD_LOG_DIR", "tensorboard"),
)
"""Our name, Vertex AI's name, the folder under the run."""


def of_job(spec: Spec, packages: str, reports: str = "") -> Dict[str, str]:
    """Return the environment of the script: the host's own, the run's places, what the user added.

    `packages` and `reports` are folders on this host; reports are kept with the run when the script ends.
    """
    result = dict(os.environ)
    result.update(
        TPUCTL_RUN=spec.run,
        TPUCTL_ATTEMPT=str(spec.attempt),
        TPUCTL_WORKER=str(spec.worker),
        TPUCTL_WORKERS=str(spec.workers),
        PYTHONUNBUFFERED="1",
    )
    for ours, vertex, folder in FOLDERS:
        result[ours] = result[vertex] = "gs://%s/runs/%s/%s" % (spec.bucket, spec.run, folder)
    if reports:
        result["TPUCTL_REPORT_DIR"] = reports
    if spec.framework == "tensorflow" and spec.workers == 1:
        result["TPU_NAME"] = "local"  # TPUClusterResolver() of one host: no look-up of the node
    result.update(spec.environment)
    if packages:
        result["PYTHONPATH"] = os.pathsep.join(filter(None, [packages, result.get("PYTHONPATH", "")]))
    return result
