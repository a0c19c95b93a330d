"""Lists TensorFlow's private names that the emulation uses, in one table, and checks them before use."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

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
        (
            "EagerTensor.device",
            "SymbolicTensor.device",
            "Operation.device",
            "Operation.traceback",
            "Graph._add_device_to_stack",
            "Graph._get_function",
            "Graph.get_operations",
            "get_default_graph",
        ),
    ),
    "variables": ("tensorflow.python.ops.resource_variable_ops", ("BaseResourceVariable.device",)),
    "values": (
        "tensorflow.python.distribute.values",
        (
            "DistributedVariable.device",
            "PerReplica.values",
            "PerReplicaSpec",
            "apply_aggregation_replica_context",
        ),
    ),
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
        ("Client._fetch_cloud_tpu_metadata", "Client.network_endpoints", "Client.name"),
    ),
    "tpu_strategy": (
        "tensorflow.python.distribute.tpu_strategy",
        ("TPUStrategyV2", "TPUStrategy", "TPUExtended._check_spec", "validate_run_function"),
    ),
    "mirrored": (
        "tensorflow.python.distribute.mirrored_strategy",
        (
            "MirroredExtended._initialize_single_worker",
            "MirroredExtended._call_for_each_replica",
            "MirroredExtended._get_cross_device_ops",
            "MirroredExtended._update",
            "MirroredExtended._use_merge_call",
            "MirroredExtended.worker_devices",
            "MirroredExtended.parameter_devices",
        ),
    ),
    "reduction": ("tensorflow.python.distribute.cross_device_ops", ("ReductionToOneDevice",)),
    "distribute": (
        "tensorflow.python.distribute.distribute_lib",
        (
            "Strategy.run",
            "Strategy.experimental_distribute_dataset",
            "Strategy.distribute_datasets_from_function",
            "get_replica_context",
            "_wrong_strategy_scope",
            "_DefaultDistributionStrategy.run",
        ),
    ),
    "datasets": (
        "tensorflow.python.data.ops.dataset_ops",
        ("DatasetV2._apply_debug_options", "DatasetV2._inputs", "_OptionsDataset"),
    ),
    "function": (
        "tensorflow.python.eager.polymorphic_function.polymorphic_function",
        (
            "Function.__call__",
            "Function._call",
            "Function._clone",
            "Function.python_function",
            "Function.input_signature",
        ),
    ),
    "autograph": ("tensorflow.python.autograph.impl.api", ("tf_convert",)),
    "stack": ("tensorflow.python.util.tf_stack", ("extract_stack",)),
    "kernels": ("tensorflow.python.framework.kernels", ("get_registered_kernels_for_op",)),
    "func_graph": (
        "tensorflow.python.framework.func_graph",
        ("FuncGraph.captures", "FuncGraph.outer_graph", "FuncGraph.variables", "UnknownArgument"),
    ),
    "composite": ("tensorflow.python.framework.composite_tensor", ("CompositeTensor",)),
    "mirrored_run": ("tensorflow.python.distribute.mirrored_run", ("_call_for_each_replica",)),
    "saver": (
        "tensorflow.python.checkpoint.functional_saver",
        ("MultiDeviceSaver.save", "MultiDeviceSaver.restore"),
    ),
    "iterators": ("tensorflow.python.distribute.input_lib", ("DistributedIteratorBase.__next__",)),
    "rebatching": ("tensorflow.python.data.experimental.ops.distribute", ("compute_batch_size",)),
    "batched": ("tensorflow.python.data.ops.batch_op", ("_BatchDataset", "_ParallelBatchDataset")),
    "mapped": ("tensorflow.python.data.ops.map_op", ("_MapDataset", "_ParallelMapDataset")),
    "prefetched": ("tensorflow.python.data.ops.prefetch_op", ("_PrefetchDataset",)),
    "repeated": ("tensorflow.python.data.ops.repeat_op", ("_RepeatDataset",)),
    "shuffled": ("tensorflow.python.data.ops.shuffle_op", ("_ShuffleDataset",)),
    "cached": ("tensorflow.python.data.ops.cache_op", ("CacheDataset",)),
    "autograph_status": ("tensorflow.python.autograph.core.ag_ctx", ("ControlStatusCtx", "Status.ENABLED")),
    "embedding": ("tensorflow.python.tpu.tpu_embedding_v2", ("TPUEmbedding.build",)),
    "dtensor": ("tensorflow.dtensor.python.tpu_util", ("initialize_tpu_system",)),
    "control_flow": ("tensorflow.python.ops.control_flow_util_v2", ("maybe_set_lowering_attr",)),
}


# what is used of a tf.function, which it has once it is made
FUNCTION = ("_autograph", "_jit_compile")


class TensorFlow(SimpleNamespace):
    """TensorFlow (`tf`) and its private modules, by the names in HOOKS."""


class MissingHookError(Exception):
    """This TensorFlow has changed inside: the emulation would give wrong results, so it does not start."""

    def __init__(self, version: str, missing: list[str]) -> None:
        super().__init__(
            f"TensorFlow {version} has no {', '.join(missing)}, which the emulated TPU needs; "
            f"install TensorFlow {TESTED} (tested), or unset TPUCTL_SIM_TPU to run without a TPU."
        )


def load() -> TensorFlow:
    """Return TensorFlow with its private modules; raises MissingHookError."""
    tensorflow = TensorFlow(tf=import_module("tensorflow"))
    missing = []
    for name, (module, attributes) in HOOKS.items():
        try:
            setattr(tensorflow, name, import_module(module))
        except ImportError:
            missing.append(module)
            continue
        missing += [f"{module}.{path}" for path in attributes if not _has(getattr(tensorflow, name), path)]
    if not missing:
        function = tensorflow.tf.function(abs)
        missing = [
            f"tf.function(...).{attribute}" for attribute in FUNCTION if not hasattr(function, attribute)
        ]
    if missing:
        raise MissingHookError(tensorflow.tf.__version__, missing)
    return tensorflow


def _has(place: object, path: str) -> bool:
    for attribute in path.split("."):
        if not hasattr(place, attribute):
            return False
        place = getattr(place, attribute)
    return True
