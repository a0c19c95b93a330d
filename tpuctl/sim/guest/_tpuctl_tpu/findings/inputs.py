"""Checks inputs of the replicas: types and shapes that a TPU refuses, or compiles for again."""

from __future__ import annotations

from ..hooks import TensorFlow
from ..tf_objects import Shape, Tensor
from .recorder import Findings

_WIDE = ("float64", "complex128")


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
