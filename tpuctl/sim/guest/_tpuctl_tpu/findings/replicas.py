"""Checks the program of the replicas: its inputs, operations, variables, and how often it is compiled."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from types import FrameType
from typing import Any

from ..hooks import MissingHookError, TensorFlow
from ..tf_objects import Graph, Operation, Shape, Tensor
from .recorder import Findings, Place

_WIDE = ("float64", "complex128")


def install(tensorflow: TensorFlow, findings: Findings, strategy: type) -> None:
    """Look at each replica function of `strategy` while its graph is made."""
    checks = _Checks(tensorflow, findings)
    signatures = Signatures(tensorflow, findings)
    run = tensorflow.mirrored_run._call_for_each_replica

    def run_and_check(distribution: object, fn: object, args: object, kwargs: object) -> object:
        if not isinstance(distribution, strategy):
            return run(distribution, fn, args, kwargs)
        findings.used = True
        check_inputs(tensorflow, findings, args, kwargs)
        if tensorflow.context.executing_eagerly():
            return run(distribution, fn, args, kwargs)
        graph = tensorflow.ops.get_default_graph()
        before = len(graph.get_operations())
        with findings.places.around():
            result = run(distribution, fn, args, kwargs)
        checks.look(graph, before)
        signatures.count(graph)
        return result

    tensorflow.mirrored_run._call_for_each_replica = run_and_check


class _Checks:
    """The checks of a replica's operations."""

    def __init__(self, tensorflow: TensorFlow, findings: Findings) -> None:
        self._tensorflow = tensorflow
        self._findings = findings
        self._kernels = Kernels(tensorflow)

    def look(self, graph: Graph, before: int) -> None:
        """Check what was added to `graph` after its first `before` operations."""
        unsupported = []
        for operation in walk(graph, graph.get_operations()[before:]):
            if not self._kernels.compiles(operation) and not ends_in_checks(operation):
                unsupported.append(operation)
            self._check_width(operation)
            self._check_variables(operation)
        if unsupported:
            self._report(unsupported)

    def _report(self, operations: list[Operation]) -> None:
        """Apply soft placement as TensorFlow does: as it is set during tracing; it is off by default."""
        soft = self._tensorflow.tf.config.get_soft_device_placement()
        code = "HOST_OP" if soft else "UNSUPPORTED_OP"
        for operation in operations:
            place = self._place(operation)
            if soft:
                text = f"{_name(operation)} has no XLA kernel: every step waits for the host to do it"
                self._findings.slow(code, text, place, operation.type)
            else:
                text = f"{_name(operation)} has no XLA kernel: a TPU does not compile this step"
                self._findings.record(code, text, place, operation.type)
        if not soft and self._findings.checks != "off":
            raise self._tensorflow.tf.errors.InvalidArgumentError(None, None, _detected(operations))

    def _check_width(self, operation: Operation) -> None:
        if operation.type in ("Const", "Placeholder"):  # folded, or made by another operation
            return
        wide = [output.dtype.name for output in operation.outputs if output.dtype.name in _WIDE]
        if wide:
            text = f"{_name(operation)} computes in {wide[0]}, which a TPU emulates, slowly"
            self._findings.slow("FLOAT64", text, self._place(operation))

    def _check_variables(self, operation: Operation) -> None:
        if any(called(operation)):  # what it hands on is used further in
            return
        for tensor in operation.inputs:
            if tensor.dtype.name == "resource" and (variable := host_variable(self._tensorflow, tensor)):
                text = (
                    f"{_name(operation)} uses {variable}, which was made outside "
                    "strategy.scope(): its one copy is on the host, and is fetched on every step"
                )
                self._findings.slow("HOST_VARIABLE", text, self._place(operation))

    def _place(self, operation: Operation) -> Place:
        return self._findings.places.of_operation(operation) or self._findings.places.here()


def _name(operation: Operation) -> str:
    return operation.type if operation.name == operation.type else f"{operation.type} ({operation.name})"


def _detected(operations: list[Operation]) -> str:
    """The compiler's own words."""
    listed = ", ".join(
        f"{operation.type} (No registered '{operation.type}' OpKernel for XLA_TPU_JIT devices "
        f"compatible with node {{{{node {operation.name}}}}})"
        for operation in operations
    )
    return (
        f"Compilation failure: Detected unsupported operations when trying to compile graph on XLA_TPU_JIT: "
        f"{listed}\nOne approach is to outside compile the unsupported ops to run on CPUs by enabling soft "
        "placement `tf.config.set_soft_device_placement(True)`. This has a potential performance penalty.\n"
        "\tTPU compilation failed"
    )


_OTHER_REPLICA = re.compile(r"(^|/)replica_\d+(/|$)")
_FUNCTIONS = ("func", "list(func)")


def walk(graph: Graph | None, operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield the first replica's operations and those of the functions they name; the others repeat them."""
    visited: set[str] = set()
    waiting = [(graph, operation) for operation in operations]
    while waiting:
        graph, operation = waiting.pop(0)
        if _OTHER_REPLICA.search(operation.name):
            continue
        yield operation
        for name in called(operation):
            inner = _graph_of(graph, name)
            if name not in visited and inner is not None:
                visited.add(name)
                waiting += [(inner, called_operation) for called_operation in inner.get_operations()]


def ends_in_checks(operation: Operation) -> bool:
    """Whether all that an operation yields goes into Assert, which XLA drops with what leads to it."""
    consumers = [consumer for output in operation.outputs for consumer in output.consumers()]
    return bool(consumers) and all(
        consumer.type == "Assert" or ends_in_checks(consumer) for consumer in consumers
    )


def called(operation: Operation) -> Iterator[str]:
    """Yield the names of the functions that an operation calls, loops over or branches to."""
    for attribute in operation.op_def.attr:
        if attribute.type in _FUNCTIONS:
            value = operation.node_def.attr[attribute.name]
            yield from (
                [value.func.name] if value.func.name else [function.name for function in value.list.func]
            )


def _graph_of(graph: Graph | None, name: str) -> Graph | None:
    """The graph of a function that `graph` or one around it has; None for one without Python source."""
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


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


def host_variable(tensorflow: TensorFlow, tensor: Tensor) -> str:
    """Return what variable on the host a graph's resource tensor is, in words; '' for anything else."""
    handle = _outermost(tensorflow, tensor)
    data = getattr(handle, "_handle_data", None)
    if handle is None or data is None or not data.is_set or not handle.device.endswith("CPU:0"):
        return ""
    variable = data.shape_and_type[0]
    shape = ", ".join(str(dimension.size) for dimension in variable.shape.dim)
    return f"a variable of shape ({shape}), {tensorflow.tf.dtypes.as_dtype(variable.dtype).name}"


def _outermost(tensorflow: TensorFlow, tensor: Any) -> Any:
    """The eager tensor that a graph, or one around it, captured as `tensor`; None for any other tensor."""
    while not isinstance(tensor, tensorflow.ops.EagerTensor):
        graph = tensor.graph
        captures = getattr(graph, "captures", ())
        tensor = next((outer for outer, inner in captures if inner is tensor), None)
        if tensor is None:
            return None
    return tensor


def check_inputs(tensorflow: TensorFlow, findings: Findings, args: object, kwargs: object) -> None:
    """Check every tensor among the arguments of a replica function."""
    tf = tensorflow.tf
    for leaf in tf.nest.flatten((args, kwargs)):
        copies = leaf.values if isinstance(leaf, tensorflow.values.PerReplica) else (leaf,)
        tensors = [tensor for copy in copies for tensor in tf.nest.flatten(copy, expand_composites=True)]
        tensors = [
            tensor for tensor in tensors if isinstance(tensor, tf.Tensor)
        ]  # not the variables of Keras
        if tensors:
            _check_type(tensorflow, findings, tensors[0])
            _check_shape(findings, tensors[0])
            _check_evenness(findings, leaf, copies)


def _check_type(tensorflow: TensorFlow, findings: Findings, tensor: Tensor) -> None:
    if tensor.dtype == tensorflow.tf.string:
        error = tensorflow.tf.errors.InvalidArgumentError(
            None, None, f"Unsupported data type for TPU: string, caused by output {_label(tensor)}"
        )
        findings.refuse("STRING_INPUT", "the replicas get a tensor of strings", error)
    if tensor.dtype.name in _WIDE:
        text = f"the replicas get a tensor of {tensor.dtype.name}, which a TPU emulates, slowly"
        findings.slow("FLOAT64", text)


def _check_shape(findings: Findings, tensor: Tensor) -> None:
    if tensor.shape.rank is None:
        error = ValueError(
            f"input tensor {tensor} to TPUStrategy.run() has unknown rank, which is not allowed"
        )
        findings.refuse("UNKNOWN_RANK", "the replicas get a tensor of unknown rank", error)
    elif None in tensor.shape.as_list()[1:]:
        text = f"the replicas get a tensor of shape {tensor.shape}: each new length is a new compilation"
        findings.slow("DYNAMIC_SHAPE", text)


def _check_evenness(findings: Findings, leaf: object, copies: tuple[object, ...]) -> None:
    """Shapes that are known, and differ from replica to replica."""
    shapes = {str(shape) for shape in (getattr(copy, "shape", None) for copy in copies) if _known(shape)}
    if len(shapes) > 1:
        findings.slow("UNEVEN_BATCH", f"the replicas get different shapes: {', '.join(sorted(shapes))}")


def _known(shape: Shape | None) -> bool:
    return shape is not None and shape.rank is not None and None not in shape.as_list()


def _label(tensor: Tensor) -> str:
    try:
        return str(tensor.name)
    except AttributeError:  # an eager tensor has no name
        return "an argument"


_PLAIN = (bool, int, float, complex, str, bytes, type(None))
MANY = 3
"""A second signature is ordinary: a last batch, an evaluation at another size."""
LONGEST = 160
"""Characters of a signature in a message."""


class Signatures:
    """Counts the different signatures of each outermost tf.function; a second trace of one is not another."""

    def __init__(self, tensorflow: TensorFlow, findings: Findings) -> None:
        self._function = tensorflow.function.Function
        self._graphs = tensorflow.func_graph.FuncGraph
        self._findings = findings
        self._texts = SignatureTexts(tensorflow)
        self._seen: MutableMapping[object, tuple[dict[str, None], Place]] = weakref.WeakKeyDictionary()
        self._numbers = iter(range(sys.maxsize))
        self._number: MutableMapping[object, int] = weakref.WeakKeyDictionary()

    def count(self, graph: Any) -> None:
        """Note the trace that is under way."""
        call = self._being_traced()
        if call is None:
            return
        function = call["self"]
        while isinstance(getattr(graph, "outer_graph", None), self._graphs):
            graph = graph.outer_graph
        signatures, place = self._seen.setdefault(function, ({}, self._findings.places.here()))
        text = self._texts.of(graph.structured_input_signature, (call["args"], call["kwds"]))
        signatures[text] = None
        name = getattr(function.python_function, "__name__", "function")
        number = self._number.setdefault(function, next(self._numbers))
        self._findings.traced(number, name, place, len(signatures))
        if len(signatures) >= MANY:
            listed = "; ".join(_shortened(text) for text in signatures)
            number_of = f"{name} was traced for {len(signatures)} signatures"
            text = f"{number_of}, and a TPU compiles its program for each: {listed}"
            self._findings.slow("RECOMPILATION", text, place)

    def _being_traced(self) -> Mapping[str, Any] | None:
        """Return the variables of the outermost tf.function's call on the stack."""
        call: Mapping[str, Any] | None = None
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code is self._function._call.__code__:
                call = frame.f_locals
            frame = frame.f_back
        return call


class SignatureTexts:
    """The text of each signature: equal for two traces exactly where a TPU gets the same inputs."""

    def __init__(self, tensorflow: TensorFlow) -> None:
        tf = tensorflow.tf
        self._flatten = tf.nest.flatten
        self._unknown = tensorflow.func_graph.UnknownArgument
        self._per_replica = tensorflow.values.PerReplicaSpec
        self._inputs = (*_PLAIN, tf.Tensor, tf.Variable, tf.TypeSpec, tensorflow.composite.CompositeTensor)
        self._numbers: dict[int, int] = {}
        self._last = 0

    def of(self, signature: object, arguments: object) -> str:
        """Return the text of a structured signature; `arguments` are those of the call that is traced."""
        objects = iter([leaf for leaf in self._flatten(arguments) if self._is_object(leaf)])
        return f"({', '.join(self._text(leaf, objects) for leaf in self._flatten(signature))})"

    def _text(self, value: Any, objects: Iterator[Any]) -> str:
        if isinstance(value, self._unknown):
            return self._object(next(objects, None))
        if isinstance(value, self._per_replica):
            return f"{self._replicas(value)} on each replica"
        elements = getattr(value, "_element_spec", None)  # a distributed iterator's
        if elements is not None:
            return f"iterator of {', '.join(self._text(leaf, objects) for leaf in self._flatten(elements))}"
        return _leaf(value)

    def _replicas(self, value: Any) -> str:
        different = dict.fromkeys(self._text(spec, iter(())) for spec in value._value_specs)
        return " or ".join(different)

    def _is_object(self, leaf: object) -> bool:
        return not isinstance(leaf, self._inputs) and not hasattr(leaf, "__array__")

    def _object(self, value: object) -> str:
        """Return its type, with a number for each object: TensorFlow traces again for another one."""
        name = getattr(value, "__name__", "") or f"{type(value).__name__} object"
        if id(value) not in self._numbers:
            try:
                weakref.finalize(value, self._numbers.pop, id(value)).atexit = False
            except TypeError:
                return name
            self._last += 1
            self._numbers[id(value)] = self._last
        return f"{name} #{self._numbers[id(value)]}"


def _shortened(text: str) -> str:
    """Return a text of at most LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _leaf(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return repr(value)
    return f"{dtype.name}{list(shape) if shape.rank is not None else '[...]'}"
