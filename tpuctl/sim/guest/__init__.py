"""A folder on a simulated host's PYTHONPATH that runs unmodified TPU programs on logical CPU devices."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""The folder to put on PYTHONPATH; its `sitecustomize` does nothing unless TPUCTL_SIM_TPU is set."""


def environment(
    accelerator: str, *, node: str = "", cores: int | None = None, checks: str = "", slices: int = 1
) -> dict[str, str]:
    """Return the variables that give a process the emulated TPU of `accelerator`.

    `node` is the name that the program may give to TPUClusterResolver besides 'local'. `cores` runs fewer
    replicas than the slice has. `checks` is `off`, `warn` (default) or `error`: the treatment of code that a
    real TPU refuses or runs slowly. `slices` says of how many such slices this is one.
    """
    variables = {
        "PYTHONPATH": str(FOLDER),
        "TPUCTL_SIM_TPU": accelerator,
    }
    if node:
        variables["TPUCTL_SIM_NODE"] = node
    if cores:
        variables["TPUCTL_SIM_CORES"] = str(cores)
    if checks:
        variables["TPUCTL_SIM_CHECKS"] = checks
    if slices > 1:
        variables["TPUCTL_SIM_SLICES"] = str(slices)
    return variables
