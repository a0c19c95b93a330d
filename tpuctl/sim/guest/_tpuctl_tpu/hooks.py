"""The one gate to TensorFlow's private modules: what the emulation needs of them, checked before use."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

TESTED = "2.21"

# name here -> (module, what is used of it)
HOOKS = {
    "context": (
        "tensorflow.python.eager.context",
        (
            "context",
            "executing_eagerly",
            "LogicalDevice",
            "PhysicalDevice",
            "_EagerDeviceContext.__init__",
            "Context.list_logical_devices",
            "Context.list_physical_devices",
        ),
    ),
    "ops": (
        "tensorflow.python.framework.ops",
        ("EagerTensor.device", "SymbolicTensor.device", "Operation.device", "Graph._add_device_to_stack"),
    ),
    "variables": ("tensorflow.python.ops.resource_variable_ops", ("BaseResourceVariable.device",)),
    "values": ("tensorflow.python.distribute.values", ("DistributedVariable.device",)),
    "remote": ("tensorflow.python.eager.remote", ("connect_to_cluster", "connect_to_remote_host")),
    "tpu": ("tensorflow.python.tpu.tpu", ("initialize_system", "shutdown_system")),
    "systems": (
        "tensorflow.python.tpu.tpu_strategy_util",
        ("_INITIALIZED_TPU_SYSTEMS", "_LOCAL_MASTERS", "tpu.initialize_system", "tpu.shutdown_system"),
    ),
    "topology": ("tensorflow.python.tpu.topology", ("Topology.serialized",)),
    "resolver": (
        "tensorflow.python.distribute.cluster_resolver.tpu.tpu_cluster_resolver",
        (
            "client.Client",
            "TPUClusterResolver.num_accelerators",
            "TPUClusterResolver.master",
        ),
    ),
    "client": (
        "tensorflow.python.tpu.client.client",
        ("_get_tpu_name", "Client._fetch_cloud_tpu_metadata", "Client.network_endpoints", "Client.name"),
    ),
    "tpu_strategy": (
        "tensorflow.python.distribute.tpu_strategy",
        ("TPUStrategyV2", "TPUStrategy", "TPUExtended._check_spec", "validate_run_function"),
    ),
    "mirrored": (
        "tensorflow.python.distribute.mirrored_strategy",
        (
            "MirroredExtended._experimental_distribute_dataset",
            "MirroredExtended._distribute_datasets_from_function",
        ),
    ),
    "reduction": ("tensorflow.python.distribute.cross_device_ops", ("ReductionToOneDevice",)),
    "distribute": ("tensorflow.python.distribute.distribute_lib", ("Strategy.run", "get_replica_context")),
    "datasets": ("tensorflow.python.data.ops.dataset_ops", ("DatasetV2._apply_debug_options",)),
    "function": (
        "tensorflow.python.eager.polymorphic_function.polymorphic_function",
        ("Function.__call__", "Function.python_function", "Function.input_signature"),
    ),
    "autograph": ("tensorflow.python.autograph.impl.api", ("tf_convert",)),
    "autograph_status": ("tensorflow.python.autograph.core.ag_ctx", ("control_status_ctx",)),
}


class MissingHookError(Exception):
    """This TensorFlow has changed inside: the emulation would give wrong results, so it does not start."""

    def __init__(self, version: str, missing: list[str]) -> None:
        super().__init__(
            f"TensorFlow {version} has no {', '.join(missing)}, which the emulated TPU needs; "
            f"install TensorFlow {TESTED} (tested), or unset TPUCTL_SIM_TPU to run without a TPU."
        )


def load() -> Any:
    """Return TensorFlow (`tf`) and its private modules by the names in HOOKS; raises MissingHookError."""
    found = SimpleNamespace(tf=import_module("tensorflow"))
    missing = []
    for name, (module, attributes) in HOOKS.items():
        try:
            setattr(found, name, import_module(module))
        except ImportError:
            missing.append(module)
            continue
        missing += [f"{module}.{path}" for path in attributes if not _has(getattr(found, name), path)]
    if missing:
        raise MissingHookError(found.tf.__version__, missing)
    return found


def _has(place: Any, path: str) -> bool:
    for attribute in path.split("."):
        if not hasattr(place, attribute):
            return False
        place = getattr(place, attribute)
    return True
