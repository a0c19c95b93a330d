# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "jax", "flax", "optax", "orbax-checkpoint", "grain", "tensorflow-datasets", "gcsfs", "tensorboard"
# ]
#
# [tool.tpuctl]
# accelerator = "v5litepod-16"
# dataset = "corpus"
# framework = "jax"
# ///
"""Train a decoder to predict the next token, with JAX, on every chip of a slice.

    tpuctl data upload corpus SOURCE --tokens wordpiece --length 512 --file-format arrayrecord
    tpuctl submit jobs/with_jax/language_model.py -- --size base       on a slice of several hosts
    python jobs/with_jax/language_model.py --data FOLDER --out FOLDER  on this machine, without a TPU

The records have `tokens`, integers of a fixed length, 0 for padding. The model has rotary positions, fewer
heads for keys and values than for queries, RMS norms and gated layers. Products are in bfloat16, activations
are computed again in the backward pass, and all chips share parameters and the optimizer's state.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared
from etils import epath
from flax import nnx


class Size(NamedTuple):
    """The shape of a model."""

    width: int
    layers: int
    heads: int
    groups: int
    """Heads of keys and values; each serves `heads / groups` heads of queries."""
    hidden: int


SIZES = {
    "laptop": Size(128, 2, 4, 2, 384),
    "small": Size(768, 12, 12, 4, 2048),
    "base": Size(2048, 20, 16, 4, 5632),
}
"""--size -> the model: about 1, 110 and 1,000 million parameters with 32,000 tokens (laptop: with 2,000)."""


class Block(nnx.Module):
    """Attention to earlier tokens, then a gated layer; each adds to its input (batch, length, width)."""

    def __init__(self, size: Size, rngs: nnx.Rngs) -> None:
        def linear(inputs: int, outputs: int) -> nnx.Linear:
            deviation = nnx.initializers.normal(1 / math.sqrt(inputs))
            return nnx.Linear(
                inputs, outputs, use_bias=False, dtype=jnp.bfloat16, kernel_init=deviation, rngs=rngs
            )

        self.size = size
        head = size.width // size.heads
        self.before_attention = nnx.RMSNorm(size.width, rngs=rngs)
        self.queries = linear(size.width, size.width)
        self.keys = linear(size.width, head * size.groups)
        self.values = linear(size.width, head * size.groups)
        self.attended = linear(size.width, size.width)
        self.before_hidden = nnx.RMSNorm(size.width, rngs=rngs)
        self.gate = linear(size.width, size.hidden)
        self.up = linear(size.width, size.hidden)
        self.down = linear(size.hidden, size.width)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the input with what this block adds."""
        batch, length, _ = x.shape
        y = self.before_attention(x)
        queries = rotated(self.queries(y).reshape(batch, length, self.size.heads, -1))
        keys = rotated(self.keys(y).reshape(batch, length, self.size.groups, -1))
        values = self.values(y).reshape(batch, length, self.size.groups, -1)
        heads = jax.nn.dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.attended(heads.reshape(batch, length, -1))
        y = self.before_hidden(x)
        return x + self.down(nnx.silu(self.gate(y)) * self.up(y))


def rotated(heads: jax.Array) -> jax.Array:
    """Turn pairs of numbers of each head (batch, length, heads, n) by angles that grow with the position.

    RoPE: Su et al., 2021, arXiv:2104.09864.
    """
    half = heads.shape[-1] // 2
    angles = jnp.outer(jnp.arange(heads.shape[1]), 10_000 ** (-jnp.arange(half) / half))[:, None]
    first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return jnp.concatenate(turned, axis=-1).astype(heads.dtype)


class Decoder(nnx.Module):
    """Tokens (batch, length) to logits of the next ones (batch, length, vocabulary), float32."""

    def __init__(self, size: Size, vocabulary: int, rngs: nnx.Rngs) -> None:
        self.tokens = nnx.Embed(
            vocabulary, size.width, embedding_init=nnx.initializers.normal(0.02), rngs=rngs
        )
        self.blocks = nnx.List([Block(size, rngs) for _ in range(size.layers)])
        self.last = nnx.RMSNorm(size.width, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return the logits."""
        x = self.tokens(tokens).astype(jnp.bfloat16)
        for block in self.blocks:
            x = nnx.remat(lambda block, x: block(x))(block, x)  # keeps only what is between the blocks
        return jnp.dot(
            self.last(x).astype(jnp.bfloat16),
            self.tokens.embedding[...].T.astype(jnp.bfloat16),
            preferred_element_type=jnp.float32,
        )


def losses(model: Decoder, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the loss of each prediction (batch, length - 1), and 1 where it counts: not for padding, 0."""
    counted = (tokens[:, 1:] != 0).astype(jnp.float32)
    wrong = optax.softmax_cross_entropy_with_integer_labels(model(tokens[:, :-1]), tokens[:, 1:])
    return wrong * counted, counted


def load(example: dict[str, Any], chance: np.random.Generator | None) -> tuple[np.ndarray]:
    """Return the tokens of an example."""
    return (np.asarray(example["tokens"], np.int32),)


def main() -> None:
    """Train, and write checkpoints and result.json."""
    parser = shared.start(__doc__, epochs=1, batch=32, rate=0.0006)
    parser.add_argument("--size", choices=SIZES, default="laptop")
    options = shared.parse(parser)
    size = SIZES[options.size]
    data = shared.Data(options, load)
    (length,) = data.features["tokens"].shape
    vocabulary = len(epath.Path(options.data, "vocabulary.txt").read_text().splitlines())
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, options.rate, min(200, data.steps // 10), data.steps, 0.1 * options.rate
    )
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))
    created = shared.create(lambda rngs: Decoder(size, vocabulary, rngs), tx, options)
    shared.say(f"{created.parameters:,} parameters")

    def mean_loss(model: Decoder, tokens: jax.Array) -> jax.Array:
        wrong, counted = losses(model, tokens)
        return wrong.sum() / counted.sum()

    @jax.jit
    def sums(arrays: shared.Arrays, batch: Any, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        model, _ = nnx.merge(created.graph, arrays)
        wrong, counted = losses(model, *batch)
        return (wrong.sum(axis=1) * weights).sum(), (counted.sum(axis=1) * weights).sum()

    def evaluate(arrays: shared.Arrays) -> dict[str, float]:
        each = np.asarray([[float(part) for part in sums(arrays, *batch)] for batch in data.held_out()])
        wrong, counted = each.sum(axis=0)
        return {"val_loss": wrong / counted, "val_perplexity": math.exp(wrong / counted)}

    # 2 FLOP a parameter and token, twice as many backward; attention: two products of length x length x width
    # (Chowdhery et al., 2022, arXiv:2204.02311, appendix B)
    flops = options.batch * length * (6 * created.parameters + 12 * size.layers * size.width * length)
    shared.train(options, created, data, mean_loss, evaluate, flops)


if __name__ == "__main__":
    main()
