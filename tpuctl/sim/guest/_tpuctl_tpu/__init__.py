"""A Cloud TPU made of logical CPU devices, for unmodified TensorFlow programs.

Standard library and TensorFlow only: the program's Python need not have tpuctl. TensorFlow's own resolver,
initialisation and metadata code runs; what is replaced is below it (the devices, the Cloud TPU client) and
beside it (the strategy).
"""

from __future__ import annotations

from collections.abc import Mapping

from . import devices, hooks, pipelines, replica, resolver, strategy, system
from .names import DeviceNames
from .slices import Slice


def install(environ: Mapping[str, str]) -> None:
    """Give the TensorFlow of this process the TPU that `environ` names; ends the program if it cannot."""
    try:
        tpu = Slice.from_environment(environ)
        tensorflow = hooks.load()
    except (ValueError, hooks.MissingHookError) as error:
        raise SystemExit(f"tpuctl simulator: {error}") from None
    state = system.install(tensorflow, tpu)
    names = DeviceNames(tpu.cores, tpu.cores_per_host)
    devices.install(tensorflow, names, state)
    resolver.install(tensorflow, tpu)
    pipelines.install(tensorflow)
    replica.install(tensorflow, strategy.install(tensorflow, tpu, names))
