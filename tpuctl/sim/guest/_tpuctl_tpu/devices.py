"""The devices: logical CPUs that stand for TPU cores, under TPU names wherever a user meets them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from .names import DeviceNames
from .system import SystemState

_LIBRARIES = ("tensorflow", "keras", "tf_keras")
"""Packages that must see the real names: they hand them back to the runtime."""


def install(tensorflow: Any, names: DeviceNames, state: SystemState, look: Callable[[str], None]) -> None:
    """Create the devices, and put the translation of names in their way; `look` sees the names asked for."""
    _create_devices(tensorflow.tf, names.cores)
    _place_by_tpu_name(tensorflow, names, state, look)
    _list_tpus(tensorflow.context, names, state)
    _show_tpu_names(tensorflow, names, state)


def _create_devices(tf: Any, cores: int) -> None:
    """The host is CPU:0, core i is CPU:(i + 1). A TPU host has no GPU."""
    tf.config.set_visible_devices([], "GPU")
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * (cores + 1))


def _place_by_tpu_name(
    tensorflow: Any, names: DeviceNames, state: SystemState, look: Callable[[str], None]
) -> None:
    """Let `tf.device('/TPU:1')` mean the core's logical CPU, in eager code and in graphs.

    Before the system is initialised only its own pseudo device exists.
    """
    eager, graph = tensorflow.context._EagerDeviceContext, tensorflow.ops.Graph
    enter, push = eager.__init__, graph._add_device_to_stack

    def translated(device: Any) -> Any:
        name = device.to_string() if hasattr(device, "to_string") else getattr(device, "name", device)
        if isinstance(name, str):
            look(name)
        if not isinstance(name, str) or not (state.initialized or "TPU_SYSTEM" in name.upper()):
            return device
        return names.to_host(name)

    def enter_translated(self: Any, ctx: Any, device_name: Any) -> None:
        enter(self, ctx, translated(device_name))

    def push_translated(self: Any, device_name_or_function: Any, offset: int = 0) -> Any:
        return push(self, translated(device_name_or_function), offset=offset + 1)

    eager.__init__ = enter_translated
    graph._add_device_to_stack = push_translated


def _list_tpus(context: Any, names: DeviceNames, state: SystemState) -> None:
    """List the host's one CPU and, once initialised, the cores."""
    logical, physical = context.Context.list_logical_devices, context.Context.list_physical_devices

    def list_logical_devices(self: Any, device_type: str | None = None) -> list[Any]:
        devices = [device for device in logical(self) if not names.is_core(device.name)]
        if state.initialized:
            devices += [
                context.LogicalDevice(name=names.listed(core, state.job), device_type="TPU")
                for core in range(names.cores)
            ]
        return [device for device in devices if device_type in (None, device.device_type)]

    def list_physical_devices(self: Any, device_type: str | None = None) -> list[Any]:
        devices = physical(self)
        if state.initialized:
            devices += [
                context.PhysicalDevice(name=f"/physical_device:TPU:{core}", device_type="TPU")
                for core in range(names.cores)
            ]
        return [device for device in devices if device_type in (None, device.device_type)]

    context.Context.list_logical_devices = list_logical_devices
    context.Context.list_physical_devices = list_physical_devices


def _show_tpu_names(tensorflow: Any, names: DeviceNames, state: SystemState) -> None:
    """Show TPU names to the program's own code when it asks a tensor or a variable where it is."""
    shown = translation(tensorflow, names, state)
    for owner in (
        tensorflow.ops.EagerTensor,
        tensorflow.ops.SymbolicTensor,
        tensorflow.ops.Operation,
        tensorflow.variables.BaseResourceVariable,
        tensorflow.values.DistributedVariable,
    ):
        owner.device = shown(owner.device)


def translation(tensorflow: Any, names: DeviceNames, state: SystemState) -> Callable[[Any], property]:
    """Return what makes a property of device names give TPU names, except to the libraries' own code."""
    packages = os.path.dirname(os.path.dirname(os.path.abspath(tensorflow.tf.__file__)))
    libraries = tuple(os.path.join(packages, name) + os.sep for name in _LIBRARIES)

    def shown(real: Any) -> property:
        def devices(self: Any) -> Any:
            given = real.__get__(self)
            if not given or sys._getframe(1).f_code.co_filename.startswith(libraries):
                return given
            if isinstance(given, str):
                return names.to_tpu(given, state.job)
            return tuple(names.to_tpu(name, state.job) for name in given)

        return property(devices)

    return shown
