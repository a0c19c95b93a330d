"""Checks a replica function's inputs and operations, each time it is traced."""

from __future__ import annotations

from ..hooks import TensorFlow
from ..tf_objects import Graph, Operation
from .inputs import check_inputs
from .kernels import Kernels
from .operations import called, ends_in_checks, walk
from .places import Place
from .recorder import Findings
from .signatures import Signatures
from .variables import host_variable

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
