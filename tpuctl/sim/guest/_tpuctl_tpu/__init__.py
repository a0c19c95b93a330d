"""Emulates a Cloud TPU with logical CPU devices, for unmodified TensorFlow programs.

Standard library and TensorFlow only: the program's Python need not have tpuctl. TensorFlow's own resolver,
initialisation and metadata code runs; what is replaced is below it (the devices, the Cloud TPU client) and
beside it (the strategy).
"""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    compilation,
    control_flow,
    devices,
    findings,
    hooks,
    not_emulated,
    pipelines,
    replica,
    resolver,
    strategy,
    system,
    threads,
)
from .findings.host import Placement
from .names import DeviceNames
from .slices import Slice


def install(environ: Mapping[str, str]) -> None:
    """Give this process's TensorFlow the TPU that `environ` names; ends the program if that fails."""
    try:
        tpu = Slice.from_environment(environ)
        settings = findings.Settings.from_environment(environ)
        tensorflow = hooks.load()
    except (ValueError, hooks.MissingHookError) as error:
        raise SystemExit(f"tpuctl simulator: {error}") from None
    state = system.install(tensorflow, tpu)
    about = {"accelerator": tpu.accelerator, "node": tpu.node, "replicas": tpu.cores}
    recorder = findings.Findings(settings, tensorflow, about)
    names = DeviceNames(tpu.cores, tpu.cores_per_host)
    devices.install(tensorflow, names, state, Placement(recorder, state, names, tpu).look)
    threads.install(tensorflow, tpu.cores)
    resolver.install(tensorflow, tpu)
    pipelines.install(tensorflow)
    not_emulated.install(tensorflow)
    meetings = control_flow.Meetings(tensorflow)
    control_flow.install(tensorflow, meetings)
    translate = devices.translation(tensorflow, names, state)
    tpu_strategy = strategy.install(tensorflow, tpu, names, meetings, translate)
    replica.install(tensorflow, tpu_strategy)
    compilation.install(tensorflow, tpu_strategy)
    findings.install(tensorflow, recorder, state, tpu_strategy)
