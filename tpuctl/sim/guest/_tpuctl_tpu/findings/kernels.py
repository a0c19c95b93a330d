"""Finds whether XLA can compile an operation, by TensorFlow's registry of kernels."""

from __future__ import annotations

from ..hooks import MissingHookError, TensorFlow
from ..tf_objects import Operation

# Registered for no XLA device, and yet part of TPU programs.
COMPILED_OTHERWISE = frozenset(
    {
        # inputs and captured values of a graph
        *("Placeholder", "PlaceholderV2", "HostConst", "GuaranteeConst"),
        # control flow and calls, which XLA functionalizes or inlines
        *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase", "For"),
        *("PartitionedCall", "StatefulPartitionedCall", "RemoteCall", "SymbolicGradient"),
        *("Switch", "Merge", "Enter", "Exit", "LoopCond", "NextIteration"),
        # lowered to other operations by the compiler's MLIR passes
        *("ResourceGatherNd", "TensorListResize", "TensorListScatterIntoExistingList"),
        *("TensorListScatter", "TensorListScatterV2", "TensorListConcat", "TensorListConcatLists"),
        *("TensorListPushBackBatch", "ResizeNearestNeighborGrad", "DisableCopyOnRead"),
        # in the TPU's own library
        *("InplaceAdd", "InplaceSub", "InplaceUpdate"),
        # how a mirrored strategy reduces, where a TPU has its own interconnect
        *("CollectiveReduceV2", "CollectiveReduceV3", "CollectiveGatherV2"),
        *("CollectiveReduceScatterV2", "CollectiveAllToAllV2", "CollectiveAllToAllV3"),
        "CollectiveInitializeCommunicator",
    }
)
_DEVICE = "XLA_CPU_JIT"
_STRING = 7
"""DT_STRING"""


class Kernels:
    """Asks the registry; XLA's kernels are in it once something was compiled."""

    def __init__(self, tensorflow: TensorFlow) -> None:
        self._tensorflow = tensorflow
        self._registered = False
        self._known: dict[str, list[dict[str, frozenset[int]]]] = {}

    def compiles(self, operation: Operation) -> bool:
        """Whether XLA has a kernel for an operation of a graph, with the types that it has there.

        Raises MissingHookError when the registry shows no kernel of XLA at all.
        """
        if operation.type in COMPILED_OTHERWISE:
            return True
        if not self._registered:
            self._register()
        if operation.type not in self._known:
            self._known[operation.type] = self._of(operation.type)
        return any(_takes(kernel, operation) for kernel in self._known[operation.type])

    def _register(self) -> None:
        """Compile a small function, outside of the graph that is being traced."""
        tf = self._tensorflow.tf
        with tf.init_scope(), tf.device("/CPU:0"):
            tf.function(lambda: tf.constant(1.0) + 1.0, jit_compile=True, autograph=False)()
        if not self._of("MatMul"):
            raise MissingHookError(tf.__version__, [f"kernels for {_DEVICE} in its registry"])
        self._registered = True

    def _of(self, operation_type: str) -> list[dict[str, frozenset[int]]]:
        """The kernels of a type of operation: the types they take, by attribute."""
        return [
            {
                constraint.name: frozenset(constraint.allowed_values.list.type)
                for constraint in kernel.constraint
            }
            for kernel in self._tensorflow.kernels.get_registered_kernels_for_op(operation_type).kernel
            if kernel.device_type == _DEVICE
        ]


def _takes(kernel: dict[str, frozenset[int]], operation: Operation) -> bool:
    """Whether a kernel takes an operation's types.

    Only strings are distinguished: XLA's lists for the CPU and for the TPU differ in numeric types.
    """
    for attribute, allowed in kernel.items():
        value = operation.node_def.attr[attribute]
        types = [value.type] if value.type else list(value.list.type)
        if _STRING in types and _STRING not in allowed:
            return False
    return True
