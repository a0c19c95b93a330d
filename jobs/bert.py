# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "reuters_wordpiece"
# framework = "tensorflow"
# ///
"""Classify texts with BERT, with Keras' `fit` or a custom training loop.

    tpuctl data upload reuters_wordpiece FOLDER --tokens wordpiece --vocabulary 8000 --length 128
    tpuctl submit jobs/bert.py -- --loop custom                      on a Cloud TPU
    python jobs/bert.py --data FOLDER --out FOLDER --loop custom     on this machine, without a TPU

The records have `tokens`, int64 of a fixed length ([CLS], the word pieces, [SEP], 0 for padding), and
`label`, int64. The sizes of vocabulary, texts and classes come from the files of the dataset.

Without --preset a small BERT is trained from scratch. --preset FOLDER (or gs://) loads size and weights from
a checkpoint that Google published, bert_config.json and bert_model.ckpt.*. The dataset must then use the
vocab.txt of the preset: tpuctl data upload NAME FOLDER --tokens wordpiece --vocabulary FILE

Devlin et al. 2018, BERT: Pre-training of Deep Bidirectional Transformers (arXiv:1810.04805).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import training
from training import say

PADDING = 0
"""Token id that pads a text."""
PRESET_RATE, SCRATCH_RATE = 3e-5, 5e-4
"""Peak learning rate of AdamW for published weights (Devlin et al. 2018, A.3), and from scratch."""


class Size(NamedTuple):
    """The size of a BERT, with the names of bert_config.json."""

    vocab_size: int
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2


def main() -> None:
    """Train, and report the accuracy on the test texts after each epoch."""
    options = parse_arguments()
    strategy = training.choose_strategy(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    texts = training.describe_texts(options.data)
    size = choose_size(options, texts)
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)
    build = functools.partial(build_model, size, texts, options.dropout)

    with strategy.scope():
        model = build()
        if options.preset:
            load_preset(model, options.preset)
        optimizer = build_optimizer(options, model, steps * options.epochs)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.add_estimate(build, (texts.length,), tf.int32)

    def read() -> tf.distribute.DistributedDataset:
        return strategy.distribute_datasets_from_function(
            lambda context: training.read(
                train, context, batch, texts.parse, seed=options.seed, step=progress.step, augment=add_seed
            )
        )

    validation = strategy.distribute_datasets_from_function(
        lambda context: training.read_once(test, context, batch, texts.parse)
    )
    train_by = {"fit": train_by_fit, "custom": train_by_loop}[options.loop]
    train_by(strategy, model, optimizer, progress, options.epochs, batch, read, validation)
    progress.save_weights(model, "bert")
    progress.finish()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = training.parser(__doc__, epochs=5, batch=32, steps_per_call=20)
    add = parser.add_argument
    add("--loop", choices=("fit", "custom"), default="fit", help="Keras' fit or a custom training loop")
    add("--preset", metavar="FOLDER", help="folder of a published checkpoint, which sets the size")
    add("--layers", type=int, default=2, help="encoder layers")
    add("--hidden", type=int, default=128, help="hidden size, the width of a token's vector")
    add("--heads", type=int, default=2, help="attention heads; the hidden size has to be a multiple")
    add("--dropout", type=float, default=0.1, help="dropout rate")
    add("--learning-rate", type=float, help=f"peak; {PRESET_RATE:g} for a preset, else {SCRATCH_RATE:g}")
    add("--warm-up", type=float, default=0.1, metavar="SHARE", help="share of all steps that warm up")
    add("--weight-decay", type=float, default=0.01, help="weight decay of AdamW")
    return parser.parse_args()


# the data


def add_seed(tokens: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the inputs of the model for training (tokens and seed), and the label."""
    return {"tokens": tokens, "seed": tf.cast(seed, tf.int32)}, label


# training


def train_by_fit(
    strategy: tf.distribute.Strategy,
    model: Bert,
    optimizer: tf.keras.optimizers.Optimizer,
    progress: training.Progress,
    epochs: int,
    batch: int,
    read: Callable[[], tf.distribute.DistributedDataset],
    validation: tf.distribute.DistributedDataset,
) -> None:
    """Train with Keras' `fit` up to `epochs` epochs."""
    with strategy.scope():
        model.compile(
            optimizer=optimizer,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
            steps_per_execution=progress.steps_per_call,
            jit_compile=False,  # a TPU compiles each replica's step by itself
        )
    progress.instrument(model, validation)
    for arguments in progress.fit_arguments(epochs):
        model.fit(read(), callbacks=[progress], shuffle=False, verbose=0, **arguments)


def train_by_loop(
    strategy: tf.distribute.Strategy,
    model: Bert,
    optimizer: tf.keras.optimizers.Optimizer,
    progress: training.Progress,
    epochs: int,
    batch: int,
    read: Callable[[], tf.distribute.DistributedDataset],
    validation: tf.distribute.DistributedDataset,
) -> None:
    """Train with a custom training loop up to `epochs` epochs; the result is that of `fit`."""

    def sums_of(losses: tf.Tensor, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        correct = tf.cast(tf.argmax(logits, axis=1, output_type=tf.int32) == labels, tf.float32)
        summed = (losses, correct, tf.ones_like(losses))
        return tf.stack([tf.reduce_sum(weights * values) for values in summed])

    def train_step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return sums_of(losses, logits, labels, tf.ones_like(losses))

    def test_step(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        logits = model(tokens, training=False)
        return sums_of(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits), logits, labels, weights
        )

    @tf.function
    def train_steps(batches: training.TimedBatches, steps: tf.Tensor) -> tf.Tensor:
        sums = tf.zeros(3)
        for _ in tf.range(steps):  # this loop runs on the TPU's host, without Python
            sums += strategy.reduce("SUM", strategy.run(train_step, args=next(batches)), axis=None)
        return sums

    @tf.function
    def test_batch(batch: tuple[Any, Any, Any]) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(test_step, args=batch), axis=None)

    batches = progress.time_input(read())
    for epoch in progress.epochs(epochs):
        sums = sum(train_steps(batches, tf.constant(steps)) for steps in progress.calls())
        val_sums = sum(test_batch(batch) for batch in validation)
        progress.report(epoch, **means(sums), **means(val_sums, "val_"))


def means(sums: tf.Tensor, prefix: str = "") -> dict[str, float]:
    """Return loss and accuracy from the sums of losses, correct predictions and weights."""
    loss, correct, weight = sums.numpy().tolist()
    return {f"{prefix}loss": loss / weight, f"{prefix}accuracy": correct / weight}


class WarmUpThenDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises to `rate` in `warm_up` steps and falls to 0 at `steps`, both linearly."""

    def __init__(self, rate: float, warm_up: int, steps: int) -> None:
        self.rate, self.warm_up, self.steps = rate, warm_up, steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        rising = (step + 1) / max(self.warm_up, 1)
        falling = (self.steps - step) / max(self.steps - self.warm_up, 1)
        return self.rate * tf.minimum(rising, falling)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"rate": self.rate, "warm_up": self.warm_up, "steps": self.steps}


def build_optimizer(options: argparse.Namespace, model: Bert, steps: int) -> tf.keras.optimizers.Optimizer:
    """Return AdamW with its schedule over `steps` steps; biases and normalizations do not decay."""
    rate = options.learning_rate or (PRESET_RATE if options.preset else SCRATCH_RATE)
    schedule = WarmUpThenDecay(rate, round(options.warm_up * steps), steps)
    optimizer = tf.keras.optimizers.AdamW(schedule, weight_decay=options.weight_decay, epsilon=1e-6)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(model.trainable_variables)
    return optimizer


# the model


class Dropout:
    """Dropout whose mask depends only on the seed of the batch.

    Keras' own layer would use the same mask on every replica.
    """

    def __init__(self, rate: float, seed: tf.Tensor) -> None:
        self.rate, self.seed, self.count = rate, seed, 0

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        if not self.rate:
            return x
        self.count += 1
        return tf.nn.experimental.stateless_dropout(
            x, self.rate, seed=self.seed + tf.constant([self.count, 0])
        )


def dense(width: int, activation: Any = None, dtype: str | None = None) -> tf.keras.layers.Layer:
    """Return a dense layer with BERT's weight initializer."""
    normal = tf.keras.initializers.TruncatedNormal(stddev=0.02)
    return tf.keras.layers.Dense(width, activation, kernel_initializer=normal, dtype=dtype)


def embedding(rows: int, width: int) -> tf.keras.layers.Layer:
    """Return an embedding layer with BERT's weight initializer."""
    normal = tf.keras.initializers.TruncatedNormal(stddev=0.02)
    return tf.keras.layers.Embedding(rows, width, embeddings_initializer=normal)


def norm() -> tf.keras.layers.Layer:
    """Return BERT's layer normalization."""
    return tf.keras.layers.LayerNormalization(epsilon=1e-12)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Return the Gaussian error linear unit in BERT's tanh approximation."""
    return tf.nn.gelu(x, approximate=True)


class EncoderLayer(tf.keras.layers.Layer):
    """Self-attention over the visible tokens, then two dense layers per token."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.num_attention_heads
        self.query, self.key, self.value = (dense(size.hidden_size) for _ in range(3))
        self.attended, self.attended_norm = dense(size.hidden_size), norm()
        self.wide = dense(size.intermediate_size, gelu)
        self.narrow, self.narrow_norm = dense(size.hidden_size), norm()

    def call(self, x: tf.Tensor, *, visible: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the output of the layer; x and the output have shape (texts, tokens, hidden)."""
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = tf.einsum("nqhd,nkhd->nhqk", query, key) * query.shape[-1] ** -0.5
        scores = tf.where(visible[:, None, None, :], tf.cast(scores, tf.float32), -1e9)
        weights = dropout(tf.cast(tf.nn.softmax(scores), value.dtype))
        mixed = tf.reshape(tf.einsum("nhqk,nkhd->nqhd", weights, value), tf.shape(x))
        x = self.attended_norm(x + dropout(self.attended(mixed)))
        return self.narrow_norm(x + dropout(self.narrow(self.wide(x))))

    def split(self, x: tf.Tensor) -> tf.Tensor:
        """Return x with shape (texts, tokens, heads, width of a head)."""
        return tf.reshape(x, [-1, x.shape[1], self.heads, x.shape[2] // self.heads])


class Bert(tf.keras.Model):
    """BERT's encoder and pooler with a classifier; returns logits in float32.

    The input is tokens, int32 of shape (texts, tokens). In training it is a dict of these `tokens` and of
    `seed`, int32 of shape (texts, 2); the seed of the first text sets the dropout masks.
    """

    def __init__(self, size: Size, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.rate = dropout
        self.words = embedding(size.vocab_size, size.hidden_size)
        self.positions = embedding(size.max_position_embeddings, size.hidden_size)
        self.segments = embedding(size.type_vocab_size, size.hidden_size)
        self.embedded_norm = norm()
        self.encoder = [EncoderLayer(size) for _ in range(size.num_hidden_layers)]
        self.pooler = dense(size.hidden_size, "tanh")
        self.classifier = dense(classes, dtype="float32")

    def call(self, inputs: tf.Tensor | dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits, of shape (texts, classes)."""
        if not isinstance(inputs, dict):
            inputs = {"tokens": inputs, "seed": tf.zeros([1, 2], tf.int32)}
        dropout = Dropout(self.rate if training else 0.0, inputs["seed"][0])
        return self.classifier(dropout(self.pooler(self.encode(inputs["tokens"], dropout)[:, 0])))

    def encode(self, tokens: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the output of the last layer, of shape (texts, tokens, hidden); a text is one segment."""
        x = self.words(tokens) + self.positions(tf.range(tokens.shape[1]))[None]
        x = dropout(self.embedded_norm(x + self.segments(tf.zeros_like(tokens))))
        for layer in self.encoder:
            x = layer(x, visible=tokens != PADDING, dropout=dropout)
        return x

    def published(self) -> dict[str, tf.Variable]:
        """Return the variables by their names in Google's checkpoints, without the prefix `bert/`."""
        modules = {
            "embeddings/LayerNorm": self.embedded_norm,
            "pooler/dense": self.pooler,
        }
        for number, layer in enumerate(self.encoder):
            modules |= {
                f"encoder/layer_{number}/attention/self/query": layer.query,
                f"encoder/layer_{number}/attention/self/key": layer.key,
                f"encoder/layer_{number}/attention/self/value": layer.value,
                f"encoder/layer_{number}/attention/output/dense": layer.attended,
                f"encoder/layer_{number}/attention/output/LayerNorm": layer.attended_norm,
                f"encoder/layer_{number}/intermediate/dense": layer.wide,
                f"encoder/layer_{number}/output/dense": layer.narrow,
                f"encoder/layer_{number}/output/LayerNorm": layer.narrow_norm,
            }
        tables = {
            "embeddings/word_embeddings": self.words.embeddings,
            "embeddings/position_embeddings": self.positions.embeddings,
            "embeddings/token_type_embeddings": self.segments.embeddings,
        }
        return tables | {
            f"{module}/{variable}": getattr(layer, variable)
            for module, layer in modules.items()
            for variable in (("gamma", "beta") if "LayerNorm" in module else ("kernel", "bias"))
        }


def build_model(size: Size, texts: training.Texts, dropout: float = 0.1) -> Bert:
    """Return the untrained model, with its variables created."""
    model = Bert(size, texts.classes, dropout)
    model(tf.zeros([1, texts.length], tf.int32))
    return model


def choose_size(options: argparse.Namespace, texts: training.Texts) -> Size:
    """Return the size of the preset or of the options; exits the program if the texts do not fit."""
    if not options.preset:
        if options.hidden % options.heads:
            raise SystemExit(f"--hidden {options.hidden} is not a multiple of --heads {options.heads}.")
        intermediate = 4 * options.hidden
        return Size(
            texts.vocabulary, options.layers, options.hidden, options.heads, intermediate, texts.length
        )
    size = preset_size(options.preset)
    if texts.vocabulary != size.vocab_size:
        raise SystemExit(
            f"The dataset's vocabulary has {texts.vocabulary} entries, that of {options.preset}"
            f" {size.vocab_size}. Upload the dataset with its vocab.txt"
            " (tpuctl data upload --tokens wordpiece --vocabulary FILE)."
        )
    if texts.length > size.max_position_embeddings:
        raise SystemExit(
            f"The texts have {texts.length} tokens; {options.preset} takes {size.max_position_embeddings}."
        )
    return size


# a published checkpoint


def preset_size(folder: str) -> Size:
    """Return the size of the BERT in `folder`, from its bert_config.json."""
    config = json.loads(training.read_text(folder, "bert_config.json"))
    if config.get("hidden_act", "gelu") != "gelu":
        raise SystemExit(f"{folder} has the activation {config['hidden_act']}; only gelu is supported.")
    return Size(**{name: config[name] for name in Size._fields})


def load_preset(model: Bert, folder: str) -> None:
    """Load all weights but the classifier's from the checkpoint in `folder`.

    The heads for pre-training (`cls/`) are skipped. Exits the program if a variable is missing, is unknown to
    the model, or has another shape.
    """
    reader = tf.train.load_checkpoint(os.path.join(folder, "bert_model.ckpt"))
    variables = {f"bert/{name}": variable for name, variable in model.published().items()}
    expected = {name: list(variable.shape) for name, variable in variables.items()}
    published = {
        name: shape for name, shape in reader.get_variable_to_shape_map().items() if name.startswith("bert/")
    }
    wrong = sorted(name for name in {*expected, *published} if expected.get(name) != published.get(name))
    if wrong:
        name = wrong[0]
        raise SystemExit(
            f"{folder} does not fit the model. {len(wrong)} variables differ, such as {name}: "
            f"{published.get(name, 'none')} in the checkpoint, {expected.get(name, 'none')} in the model."
        )
    for name, variable in variables.items():
        variable.assign(reader.get_tensor(name))
    say(f"loaded {len(variables)} variables from {folder}")


if __name__ == "__main__":
    main()
