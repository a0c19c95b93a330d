# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "jax", "flax", "optax", "orbax-checkpoint", "grain", "tensorflow-datasets", "gcsfs", "tensorboard",
#   "pillow"
# ]
#
# [tool.tpuctl]
# accelerator = "v5litepod-16"
# dataset = "pictures"
# framework = "jax"
# ///
"""Train a residual network to classify pictures, with JAX, on every chip of a slice.

    tpuctl data upload pictures FOLDER --file-format arrayrecord
    tpuctl submit jobs/with_jax/resnet.py                    on a slice of one or several hosts
    python jobs/with_jax/resnet.py --data FOLDER --out FOLDER --side 28 --depth 18    on this machine

The records have `image`, of any size, and `label`. Training crops and mirrors them at random (`--seed`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared
from flax import nnx
from PIL import Image

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
"""--depth -> blocks of each stage (He et al., 2015, arXiv:1512.03385, table 1)."""


class Convolution(nnx.Module):
    """A convolution in bfloat16 without bias, then batch normalisation over the global batch."""

    def __init__(self, inputs: int, outputs: int, side: int, stride: int, rngs: nnx.Rngs) -> None:
        self.convolution = nnx.Conv(
            inputs,
            outputs,
            (side, side),
            stride,
            use_bias=False,
            dtype=jnp.bfloat16,
            kernel_init=nnx.initializers.variance_scaling(2.0, "fan_out", "normal"),
            rngs=rngs,
        )
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return features (batch, height / stride, width / stride, outputs)."""
        return self.norm(self.convolution(x))


class Block(nnx.Module):
    """Adds to its input what two convolutions of 3 x 3 find, or with depth 50 a bottleneck of three."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool, rngs: nnx.Rngs) -> None:
        outputs = 4 * width if bottleneck else width
        shapes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        if bottleneck:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.layers = nnx.List([Convolution(*shape, rngs) for shape in shapes])
        changes = inputs != outputs or stride != 1
        self.shortcut = Convolution(inputs, outputs, 1, stride, rngs) if changes else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the sum."""
        y = x if self.shortcut is None else self.shortcut(x)
        *first, last = self.layers
        for layer in first:
            x = nnx.relu(layer(x))
        return nnx.relu(last(x) + y)


class ResNet(nnx.Module):
    """Images (batch, side, side, channels), floats from -1 to 1, to logits (batch, classes), float32.

    Images of less than 64 pixels keep their size at the entrance, as He et al. do for CIFAR-10.
    """

    def __init__(self, depth: int, side: int, channels: int, classes: int, rngs: nnx.Rngs) -> None:
        self.is_small = side < 64
        self.entrance = Convolution(channels, 64, 3 if self.is_small else 7, 1 if self.is_small else 2, rngs)
        blocks, inputs = [], 64
        for stage, number in enumerate(BLOCKS[depth]):
            for block in range(number):
                stride = 2 if stage and not block else 1
                blocks.append(Block(inputs, 64 * 2**stage, stride, depth >= 50, rngs))
                inputs = 64 * 2**stage * (4 if depth >= 50 else 1)
        self.blocks = nnx.List(blocks)
        self.logits = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the logits."""
        x = nnx.relu(self.entrance(images))
        if not self.is_small:
            x = nnx.max_pool(x, (3, 3), (2, 2), "SAME")
        for block in self.blocks:
            x = block(x)
        return self.logits(x.mean((1, 2)).astype(jnp.float32))


def picture(
    example: dict[str, Any], chance: np.random.Generator | None, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a square of the picture as floats from -1 to 1, and the label.

    It is the middle; with `chance` a part of 8 to 100 % of that, or of a small one the whole, moved a little.
    """
    pixels = np.asarray(example["image"])
    height, width = pixels.shape[:2]
    small = side < 64
    edge = min(height, width)
    if chance is not None and not small:
        edge = int(edge * chance.uniform(0.08, 1.0) ** 0.5) or 1
    slack = np.array([height - edge, width - edge])
    top, left = slack // 2 if chance is None else chance.integers(0, slack + 1)
    pixels = pixels[top : top + edge, left : left + edge]
    if edge != side:
        image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
        pixels = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)).reshape(side, side, -1)
    if chance is not None:
        if small:  # moved by up to four pixels
            down, right = chance.integers(0, 9, 2)
            pixels = np.pad(pixels, ((4, 4), (4, 4), (0, 0)))[down : down + side, right : right + side]
        if chance.integers(2):
            pixels = pixels[:, ::-1]
    return pixels.astype(np.float32) / 127.5 - 1, np.asarray(example["label"], np.int32)


def main() -> None:
    """Train, and write checkpoints and result.json."""
    parser = shared.start(__doc__, epochs=90, batch=1024, rate=0.4)
    parser.add_argument("--depth", type=int, choices=BLOCKS, default=50)
    parser.add_argument("--side", type=int, default=224, help="images become squares of so many pixels")
    options = shared.parse(parser)
    data = shared.Data(options, partial(picture, side=options.side))
    classes, channels = data.features["label"].num_classes, data.features["image"].shape[-1]

    # He et al.: momentum 0.9, decay 0.0001; warm-up: Goyal et al., 2017, arXiv:1706.02677
    schedule = optax.warmup_cosine_decay_schedule(0.0, options.rate, data.steps // 18, data.steps)
    kernels = partial(jax.tree.map, lambda array: array.ndim > 1)
    tx = optax.chain(optax.add_decayed_weights(1e-4, kernels), optax.sgd(schedule, 0.9, nesterov=True))
    created = shared.create(
        lambda rngs: ResNet(options.depth, options.side, channels, classes, rngs), tx, options
    )
    shared.say(f"{created.parameters:,} parameters")

    def mean_loss(model: ResNet, images: jax.Array, labels: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    @jax.jit
    def correct(arrays: shared.Arrays, batch: Any, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        model, _ = nnx.merge(created.graph, arrays)
        model.eval()  # normalised by the moving averages
        images, labels = batch
        return ((model(images).argmax(axis=1) == labels) * weights).sum(), weights.sum()

    def evaluate(arrays: shared.Arrays) -> dict[str, float]:
        each = np.asarray([[float(part) for part in correct(arrays, *batch)] for batch in data.held_out()])
        right, examples = each.sum(axis=0)
        return {"val_accuracy": right / examples}

    shared.train(options, created, data, mean_loss, evaluate)


if __name__ == "__main__":
    main()
