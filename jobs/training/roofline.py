"""A lower bound of the time of a training step on a TPU, by a roofline model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class Chip(NamedTuple):
    """One TPU chip."""

    cores: int
    """How much one chip adds to the number in a type's name: a `v3-8` has four chips of two cores."""
    tflops: float
    """Peak in bfloat16, TFLOP/s."""
    gbps: float
    """Peak memory bandwidth (HBM), GB/s."""


CHIPS = {
    "v2": Chip(2, 45, 700),
    "v3": Chip(2, 123, 900),
    "v4": Chip(2, 275, 1200),
    "v5litepod": Chip(1, 197, 819),
    "v5p": Chip(2, 459, 2765),
    "v6e": Chip(1, 918, 1640),
}
"""First part of a type's name -> its chip. Cloud TPU documentation; v2: Jouppi et al., CACM 2020."""


def estimate(
    build: Callable[[], tf.keras.Model], shape: tuple[int, ...], dtype: Any, batch: int, slots: int, type: str
) -> str:
    """Return a sentence with the least time of a training step on the accelerator `type`.

    `shape` and `dtype` are those of the input, without the batch axis; `batch` is the global batch size.

    Each convolution and matrix product, forward and backward, takes the longer of two times: that of its
    FLOPs at the chip's peak, and that of moving its operands and its result in bfloat16 at the peak memory
    bandwidth (Williams et al., CACM 2009). Then the optimizer reads and writes, in float32, the weights, the
    gradients and its `slots` other numbers. Element-wise operations (they fuse), communication between chips
    and input count as free.
    """
    generation, _, size = type.rpartition("-")
    if generation not in CHIPS or not size.isdigit():
        return f"no roofline model for '{type}', only for {', '.join(CHIPS)}"
    chip = CHIPS[generation]
    chips = max(int(size) // chip.cores, 1)
    model = build()
    work = list(products(model, (-(-batch // chips), *shape), dtype))
    update = 4 * (3 * _elements(*model.trainable_variables) + 2 * slots)
    seconds = sum(max(flops / (1e12 * chip.tflops), moved / (1e9 * chip.gbps)) for flops, moved in work)
    seconds += update / (1e9 * chip.gbps)
    tera, giga = sum(flops for flops, _ in work) / 1e12, (sum(moved for _, moved in work) + update) / 1e9
    return (
        f"expected on a {type}, by a roofline model and not measured: {1000 * seconds:.2g} ms/step at least"
        f" ({tera:.3g} TFLOP and {giga:.3g} GB on each of {chips} chips of {chip.tflops:g} TFLOP/s"
        f" and {chip.gbps:g} GB/s)"
    )


class Product(NamedTuple):
    """A matrix product or a convolution."""

    flops: int
    bytes: int
    """Of operands and result, in bfloat16."""


def products(model: tf.keras.Model, shape: tuple[int, ...], dtype: Any) -> list[Product]:
    """Return the products of a forward and a backward pass over a batch of this shape."""

    @tf.function
    def step(inputs: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(model(inputs, training=True), tf.float32))
        return loss, tape.gradient(loss, model.trainable_variables)

    results = step.get_concrete_function(tf.TensorSpec(shape, dtype)).graph.outputs
    return [
        Product(2 * MULTIPLICATIONS[node.type](node), 2 * _elements(*node.inputs, *node.outputs))
        for node in _ancestors(results)
        if node.type in MULTIPLICATIONS
    ]


def _ancestors(tensors: list[tf.Tensor]) -> list[tf.Operation]:
    """Return the operations that compute `tensors`; the graph has others, such as gradients of its inputs."""
    visited: dict[str, tf.Operation] = {}
    queue = [tensor.op for tensor in tensors]
    while queue:
        operation = queue.pop()
        if operation.name not in visited:
            visited[operation.name] = operation
            queue += [tensor.op for tensor in operation.inputs]
    return list(visited.values())


def _matrix_product(product: tf.Operation, transposed: str) -> int:
    inner = product.inputs[0].shape[-2 if product.get_attr(transposed) else -1]
    return _elements(product.outputs[0]) * int(inner)


def _einsum(einsum: tf.Operation) -> int:
    """Multiply the lengths of all axes that the equation names; digits stand for the axes of `...`."""
    equation: str = einsum.get_attr("equation").decode()
    sizes: dict[str, int] = {}
    for letters, tensor in zip(equation.partition("->")[0].split(","), einsum.inputs, strict=True):
        unnamed = len(tensor.shape) - len(letters.replace("...", ""))
        sizes |= dict(zip(letters.replace("...", "0123456789"[:unnamed]), tensor.shape, strict=True))
    return math.prod(sizes.values())


def _convolution(pixels: tf.Tensor, kernel: tf.Tensor) -> int:
    """Count the multiplications of a kernel (height, width, inputs, outputs) at each output pixel."""
    return _elements(pixels) * _elements(kernel) // int(kernel.shape[-1])


MULTIPLICATIONS: dict[str, Callable[[tf.Operation], int]] = {
    "MatMul": lambda operation: _matrix_product(operation, "transpose_a"),
    "BatchMatMulV2": lambda operation: _matrix_product(operation, "adj_x"),
    "Einsum": _einsum,
    "Conv2D": lambda operation: _convolution(operation.outputs[0], operation.inputs[1]),
    "Conv2DBackpropInput": lambda operation: _convolution(operation.inputs[2], operation.inputs[1]),
    "Conv2DBackpropFilter": lambda operation: _convolution(operation.inputs[2], operation.outputs[0]),
}
"""Type of an operation -> its number of multiplications; each comes with one addition."""


def _elements(*tensors: Any) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors)
