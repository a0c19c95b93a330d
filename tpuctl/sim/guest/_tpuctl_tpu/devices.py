"""Creates logical CPUs in place of TPU cores, and shows them to the program under TPU names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .hooks import TensorFlow
from .names import DeviceNames
from .system import SystemState

_LIBRARIES = ("tensorflow", "keras", "tf_keras")
"""Packages that get the real names, as they pass them to the runtime."""


def install(
    tensorflow: TensorFlow, names: DeviceNames, state: SystemState, look: Callable[[str], None]
) -> None:
    """Create the devices and translate their names; `look` gets each name that the program uses."""
    _create_devices(tensorflow.tf, names.cores)
    _place_by_tpu_name(tensorflow, names, state, look)
    _list_tpus(tensorflow.context, names, state)
    _show_tpu_names(tensorflow, names, state)


def _create_devices(tf: ModuleType, cores: int) -> None:
    """The host is CPU:0, core i is CPU:(i + 1). A TPU host has no GPU."""
    tf.config.set_visible_devices([], "GPU")
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * (cores + 1))


def _place_by_tpu_name(
    tensorflow: TensorFlow, names: DeviceNames, state: SystemState, look: Callable[[str], None]
) -> None:
    """Let `tf.device('/TPU:1')` mean the core's logical CPU, in eager code and in graphs.

    Before the system is initialised only its own pseudo device exists.
    """
    eager, graph = tensorflow.context._EagerDeviceContext, tensorflow.ops.Graph
    enter, push = eager.__init__, graph._add_device_to_stack

    def translated(device: object) -> object:
        name = device.to_string() if hasattr(device, "to_string") else getattr(device, "name", device)
        if isinstance(name, str):
            look(name)
        if not isinstance(name, str) or not (state.initialized or "TPU_SYSTEM" in name.upper()):
            return device
        return names.to_host(name)

    def enter_translated(self: object, ctx: object, device_name: object) -> None:
        enter(self, ctx, translated(device_name))

    def push_translated(self: object, device_name_or_function: object, offset: int = 0) -> object:
        return push(self, translated(device_name_or_function), offset=offset + 1)

    eager.__init__ = enter_translated
    graph._add_device_to_stack = push_translated


def _list_tpus(context: ModuleType, names: DeviceNames, state: SystemState) -> None:
    """List the host's one CPU and, once initialised, the cores."""
    logical, physical = context.Context.list_logical_devices, context.Context.list_physical_devices

    def list_logical_devices(self: object, device_type: str | None = None) -> list[Any]:
        devices = [device for device in logical(self) if not names.is_core(device.name)]
        if state.initialized:
            devices += [
                context.LogicalDevice(name=names.listed(core, state.job), device_type="TPU")
                for core in range(names.cores)
            ]
        return [device for device in devices if device_type in (None, device.device_type)]

    def list_physical_devices(self: object, device_type: str | None = None) -> list[Any]:
        devices = physical(self)
        if state.initialized:
            devices += [
                context.PhysicalDevice(name=f"/physical_device:TPU:{core}", device_type="TPU")
                for core in range(names.cores)
            ]
        return [device for device in devices if device_type in (None, device.device_type)]

    context.Context.list_logical_devices = list_logical_devices
    context.Context.list_physical_devices = list_physical_devices


def _show_tpu_names(tensorflow: TensorFlow, names: DeviceNames, state: SystemState) -> None:
    """Show TPU names to the program's own code when it asks a tensor or a variable where it is."""
    translate = translation(tensorflow, names, state)
    for owner in (
        tensorflow.ops.EagerTensor,
        tensorflow.ops.SymbolicTensor,
        tensorflow.ops.Operation,
        tensorflow.variables.BaseResourceVariable,
        tensorflow.values.DistributedVariable,
    ):
        owner.device = translate(owner.device)


def translation(
    tensorflow: TensorFlow, names: DeviceNames, state: SystemState
) -> Callable[[property], property]:
    """Return a function that makes a property of device names give TPU names, but not to libraries."""
    packages = os.path.dirname(os.path.dirname(os.path.abspath(tensorflow.tf.__file__)))
    libraries = tuple(os.path.join(packages, name) + os.sep for name in _LIBRARIES)

    def translated(real: property) -> property:
        def devices(self: object) -> object:
            device = real.__get__(self)
            if not device or sys._getframe(1).f_code.co_filename.startswith(libraries):
                return device
            if isinstance(device, str):
                return names.to_tpu(device, state.job)
            return tuple(names.to_tpu(name, state.job) for name in device)

        return property(devices)

    return translated
