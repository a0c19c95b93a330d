"""Finds variables that a replica function should not use: those with one copy, on the host."""

from __future__ import annotations

from typing import Any

from ..hooks import TensorFlow
from ..tf_objects import Tensor


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
