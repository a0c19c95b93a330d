"""What a step needs at least on a TPU, by a roofline model: a bound, and no measurement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class Chip(NamedTuple):
    """One TPU chip."""

    cores: int
    """What the number in a type's name counts for one chip: a `v3-8` has four chips of two cores."""
    tflops: float
    """Peak in bfloat16, TFLOP/s."""
    gbps: float
    """Peak between the chip and its HBM, GB/s."""


CHIPS = {
    "v2": Chip(2, 45, 700),
    "v3": Chip(2, 123, 900),
    "v4": Chip(2, 275, 1200),
    "v5litepod": Chip(1, 197, 819),
    "v5p": Chip(2, 459, 2765),
    "v6e": Chip(1, 918, 1640),
}
"""First part of a type's name -> its chip. Cloud TPU documentation; v2: Jouppi et al., CACM 2020."""


def expected(
    build: Callable[[], tf.keras.Model], shape: tuple[int, ...], dtype: Any, batch: int, slots: int, type: str
) -> str:
    """Return in words what a training step needs on the accelerator `type`; `shape` is without the batch.

    Each convolution and matrix product, forward and backward, takes the longer of two times: its FLOPs at
    the chip's peak, and its operands and result in bfloat16 at the peak of the memory (Williams et al., CACM
    2009). Then the optimizer reads and writes, in float32, weights, gradients and its `slots` other numbers.
    The rest (element-wise operations, which fuse; exchange between chips; input) is taken to cost nothing.
    """
    generation, _, size = type.rpartition("-")
    if generation not in CHIPS or not size.isdigit():
        return f"no roofline model for '{type}', only for {', '.join(CHIPS)}"
    chip = CHIPS[generation]
    chips = max(int(size) // chip.cores, 1)
    model = build()
    work = list(products(model, (-(-batch // chips), *shape), dtype))
    update = 4 * (3 * _elements(*model.trainable_variables) + 2 * slots)
    seconds = sum(max(one.flops / (1e12 * chip.tflops), one.bytes / (1e9 * chip.gbps)) for one in work)
    seconds += update / (1e9 * chip.gbps)
    tera, giga = sum(one.flops for one in work) / 1e12, (sum(one.bytes for one in work) + update) / 1e9
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
        Product(2 * MULTIPLICATIONS[one.type](one), 2 * _elements(*one.inputs, *one.outputs))
        for one in _behind(results)
        if one.type in MULTIPLICATIONS
    ]


def _behind(tensors: list[Any]) -> list[tf.Operation]:
    """Return the operations that these come of: a graph holds others, such as gradients of its inputs."""
    found: dict[str, tf.Operation] = {}
    waiting = [one.op for one in tensors]
    while waiting:
        one = waiting.pop()
        if one.name not in found:
            found[one.name] = one
            waiting += [tensor.op for tensor in one.inputs]
    return list(found.values())


def _of_matrices(one: tf.Operation, transposed: str) -> int:
    return _elements(one.outputs[0]) * int(one.inputs[0].shape[-2 if one.get_attr(transposed) else -1])


def _of_letters(one: tf.Operation) -> int:
    """Count what all letters of an equation take together; `...` stands for the axes they leave."""
    equation: str = one.get_attr("equation").decode()
    sizes: dict[str, int] = {}
    for letters, tensor in zip(equation.partition("->")[0].split(","), one.inputs, strict=True):
        left = len(tensor.shape) - len(letters.replace("...", ""))
        sizes |= dict(zip(letters.replace("...", "0123456789"[:left]), tensor.shape, strict=True))
    return math.prod(sizes.values())


def _of_windows(pixels: Any, kernel: Any) -> int:
    """Count what a kernel (height, width, inputs, outputs) does at each pixel of its output."""
    return _elements(pixels) * _elements(kernel) // int(kernel.shape[-1])


MULTIPLICATIONS: dict[str, Callable[[tf.Operation], int]] = {
    "MatMul": lambda one: _of_matrices(one, "transpose_a"),
    "BatchMatMulV2": lambda one: _of_matrices(one, "adj_x"),
    "Einsum": _of_letters,
    "Conv2D": lambda one: _of_windows(one.outputs[0], one.inputs[1]),
    "Conv2DBackpropInput": lambda one: _of_windows(one.inputs[2], one.inputs[1]),
    "Conv2DBackpropFilter": lambda one: _of_windows(one.inputs[2], one.outputs[0]),
}
"""Type of an operation -> its multiplications; with each goes an addition."""


def _elements(*tensors: Any) -> int:
    return sum(math.prod(one.shape) for one in tensors)
