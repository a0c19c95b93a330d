# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "reuters_wordpiece"
# framework = "tensorflow"
# ///
"""Classify texts with BERT, by Keras' `fit` or by a loop of one's own.

    tpuctl data upload reuters_wordpiece FOLDER --tokens wordpiece --vocabulary 8000 --length 128
    tpuctl submit jobs/bert.py -- --loop custom                      on a Cloud TPU
    python jobs/bert.py --data FOLDER --out FOLDER --loop custom     on this machine, without a TPU

The records hold `tokens`, int64 of a fixed length: [CLS], the word pieces, [SEP], 0 for padding; and `label`,
int64. Vocabulary, length and classes are those of the dataset's own files.

Without --preset a small BERT learns from scratch. --preset FOLDER (or gs://) takes size and weights from a
checkpoint as Google published them, bert_config.json and bert_model.ckpt.*; the dataset must then be made
with the preset's own vocab.txt: tpuctl data upload NAME FOLDER --tokens wordpiece --vocabulary FILE

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
"""The id of the token that fills up a text."""
PRESET_RATE, SCRATCH_RATE = 3e-5, 5e-4
"""Highest learning rate of AdamW for published weights (Devlin et al. 2018, A.3), and from scratch."""


class Size(NamedTuple):
    """The size of a BERT, in the words of bert_config.json."""

    vocab_size: int
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2


def main() -> None:
    """Train, and say after each epoch how many of the test texts are told rightly."""
    options = parse_arguments()
    strategy = training.find_devices(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    texts = training.describe_texts(options.data)
    size = choose_size(options, texts)
    batch = training.whole_batch(options.batch, strategy)
    steps = train.steps(batch)
    build = functools.partial(build_model, size, texts, options.dropout)

    with strategy.scope():
        model = build()
        if options.preset:
            load_preset(model, options.preset)
        optimizer = build_optimizer(options, model, steps * options.epochs)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.expect(build, (texts.length,), tf.int32)

    def read() -> Any:
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
    add("--loop", choices=("fit", "custom"), default="fit")
    add("--preset", metavar="FOLDER", help="of a published checkpoint; without it, from scratch with:")
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128, help="width of a token's vector")
    add("--heads", type=int, default=2, help="of attention; they share the width")
    add("--dropout", type=float, default=0.1)
    add("--learning-rate", type=float, help=f"highest; {PRESET_RATE:g} for a preset, else {SCRATCH_RATE:g}")
    add("--warm-up", type=float, default=0.1, metavar="SHARE", help="of all steps")
    add("--weight-decay", type=float, default=0.01)
    return parser.parse_args()


# the data


def add_seed(tokens: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the model's inputs for training, and the label."""
    return {"tokens": tokens, "seed": tf.cast(seed, tf.int32)}, label


# training


def train_by_fit(
    strategy: tf.distribute.Strategy,
    model: Bert,
    optimizer: tf.keras.optimizers.Optimizer,
    progress: training.Progress,
    epochs: int,
    batch: int,
    read: Callable[[], Any],
    validation: Any,
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
    progress.watch(model, validation)
    for part in progress.parts(epochs):
        model.fit(read(), callbacks=[progress], shuffle=False, verbose=0, **part)


def train_by_loop(
    strategy: tf.distribute.Strategy,
    model: Bert,
    optimizer: tf.keras.optimizers.Optimizer,
    progress: training.Progress,
    epochs: int,
    batch: int,
    read: Callable[[], Any],
    validation: Any,
) -> None:
    """Train with a loop of one's own up to `epochs` epochs; it does what `fit` does."""

    def sums_of(losses: tf.Tensor, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        right = tf.cast(tf.argmax(logits, axis=1, output_type=tf.int32) == labels, tf.float32)
        return tf.stack([tf.reduce_sum(weights * one) for one in (losses, right, tf.ones_like(losses))])

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
    def train_many(batches: Any, steps: tf.Tensor) -> tf.Tensor:
        sums = tf.zeros(3)
        for _ in tf.range(steps):  # a loop on the TPU's host: Python is not asked between the steps
            sums += strategy.reduce("SUM", strategy.run(train_step, args=next(batches)), axis=None)
        return sums

    @tf.function
    def test_one(batch: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(test_step, args=batch), axis=None)

    batches = progress.wait_for(read())
    for epoch in progress.epochs(epochs):
        sums = sum(train_many(batches, tf.constant(steps)) for steps in progress.calls())
        tested = sum(test_one(one) for one in validation)
        progress.report(epoch, **means(sums), **means(tested, "val_"))


def means(sums: tf.Tensor, prefix: str = "") -> dict[str, float]:
    """Return loss and accuracy, from the sums of losses, right answers and weights."""
    loss, right, weight = sums.numpy().tolist()
    return {f"{prefix}loss": loss / weight, f"{prefix}accuracy": right / weight}


class WarmUpThenDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises to `rate` in `warm_up` steps, and falls to 0 in the rest of `steps`."""

    def __init__(self, rate: float, warm_up: int, steps: int) -> None:
        self.rate, self.warm_up, self.steps = rate, warm_up, steps

    def __call__(self, step: Any) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        rising = (done + 1) / max(self.warm_up, 1)
        falling = (self.steps - done) / max(self.steps - self.warm_up, 1)
        return self.rate * tf.minimum(rising, falling)

    def get_config(self) -> dict[str, Any]:
        """Return what makes the same schedule."""
        return {"rate": self.rate, "warm_up": self.warm_up, "steps": self.steps}


def build_optimizer(options: argparse.Namespace, model: Bert, steps: int) -> tf.keras.optimizers.Optimizer:
    """Return AdamW for so many steps in all; biases and normalizations do not decay."""
    rate = options.learning_rate or (PRESET_RATE if options.preset else SCRATCH_RATE)
    schedule = WarmUpThenDecay(rate, round(options.warm_up * steps), steps)
    optimizer = tf.keras.optimizers.AdamW(schedule, weight_decay=options.weight_decay, epsilon=1e-6)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(model.trainable_variables)
    return optimizer


# the model


class Dropout:
    """Sets a share of numbers to zero in a training step, which ones following from the batch's seed alone.

    Keras' own layer would draw the same numbers on every replica.
    """

    def __init__(self, rate: float, seed: tf.Tensor) -> None:
        self.rate, self.seed, self.used = rate, seed, 0

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        if not self.rate:
            return x
        self.used += 1
        return tf.nn.experimental.stateless_dropout(
            x, self.rate, seed=self.seed + tf.constant([self.used, 0])
        )


def dense(width: int, activation: Any = None, dtype: Any = None) -> tf.keras.layers.Layer:
    """Return a dense layer with BERT's initial weights."""
    normal = tf.keras.initializers.TruncatedNormal(stddev=0.02)
    return tf.keras.layers.Dense(width, activation, kernel_initializer=normal, dtype=dtype)


def embedding(rows: int, width: int) -> tf.keras.layers.Layer:
    """Return a table of vectors with BERT's initial weights."""
    normal = tf.keras.initializers.TruncatedNormal(stddev=0.02)
    return tf.keras.layers.Embedding(rows, width, embeddings_initializer=normal)


def norm() -> tf.keras.layers.Layer:
    """Return BERT's layer normalization."""
    return tf.keras.layers.LayerNormalization(epsilon=1e-12)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Return the Gaussian error linear unit as BERT computes it, by tanh."""
    return tf.nn.gelu(x, approximate=True)


class EncoderLayer(tf.keras.layers.Layer):
    """Attention of every token to all visible ones, then two dense layers for each token."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.num_attention_heads
        self.query, self.key, self.value = (dense(size.hidden_size) for _ in range(3))
        self.attended, self.attended_norm = dense(size.hidden_size), norm()
        self.wide = dense(size.intermediate_size, gelu)
        self.narrow, self.narrow_norm = dense(size.hidden_size), norm()

    def call(self, x: tf.Tensor, *, visible: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the layer's output, like x of shape (texts, tokens, hidden)."""
        query, key, value = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = tf.einsum("nqhd,nkhd->nhqk", query, key) * query.shape[-1] ** -0.5
        scores = tf.where(visible[:, None, None, :], tf.cast(scores, tf.float32), -1e9)
        shares = dropout(tf.cast(tf.nn.softmax(scores), value.dtype))
        mixed = tf.reshape(tf.einsum("nhqk,nkhd->nqhd", shares, value), tf.shape(x))
        x = self.attended_norm(x + dropout(self.attended(mixed)))
        return self.narrow_norm(x + dropout(self.narrow(self.wide(x))))

    def split(self, x: tf.Tensor) -> tf.Tensor:
        """Return x as (texts, tokens, heads, width of a head)."""
        return tf.reshape(x, [-1, x.shape[1], self.heads, x.shape[2] // self.heads])


class Bert(tf.keras.Model):
    """BERT's encoder and pooler, and a classifier; outputs are logits in float32.

    The input is tokens, int32 of shape (texts, tokens). In training it is a dict of these `tokens` and of
    `seed`, int32 of shape (texts, 2): the first text's says what is dropped.
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

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Return the logits, (texts, classes)."""
        if not isinstance(inputs, dict):
            inputs = {"tokens": inputs, "seed": tf.zeros([1, 2], tf.int32)}
        dropout = Dropout(self.rate if training else 0.0, inputs["seed"][0])
        return self.classifier(dropout(self.pooler(self.encode(inputs["tokens"], dropout)[:, 0])))

    def encode(self, tokens: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the last layer's output, (texts, tokens, hidden); a text is one segment."""
        x = self.words(tokens) + self.positions(tf.range(tokens.shape[1]))[None]
        x = dropout(self.embedded_norm(x + self.segments(tf.zeros_like(tokens))))
        for layer in self.encoder:
            x = layer(x, visible=tokens != PADDING, dropout=dropout)
        return x

    def published(self) -> dict[str, Any]:
        """Return the variables under the names that they have in Google's checkpoints, without `bert/`."""
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
            f"{module}/{part}": getattr(layer, part)
            for module, layer in modules.items()
            for part in (("gamma", "beta") if "LayerNorm" in module else ("kernel", "bias"))
        }


def build_model(size: Size, texts: training.Texts, dropout: float = 0.1) -> Bert:
    """Return the untrained model with all its variables."""
    model = Bert(size, texts.classes, dropout)
    model(tf.zeros([1, texts.length], tf.int32))
    return model


def choose_size(options: argparse.Namespace, texts: training.Texts) -> Size:
    """Return the preset's size, or what the command line says; ends the program if the texts do not fit."""
    if not options.preset:
        if options.hidden % options.heads:
            raise SystemExit(f"{options.heads} heads cannot share a width of {options.hidden} equally.")
        wide = 4 * options.hidden
        return Size(texts.vocabulary, options.layers, options.hidden, options.heads, wide, texts.length)
    size = preset_size(options.preset)
    if texts.vocabulary != size.vocab_size:
        raise SystemExit(
            f"The dataset's vocabulary has {texts.vocabulary} entries, that of {options.preset}"
            f" {size.vocab_size}: make the dataset with its vocab.txt (tpuctl data upload --vocabulary FILE)."
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
        raise SystemExit(f"{folder} is a BERT with the activation {config['hidden_act']}; this one has gelu.")
    return Size(**{name: config[name] for name in Size._fields})


def load_preset(model: Bert, folder: str) -> None:
    """Set all weights but the classifier's to those of the checkpoint in `folder`.

    Its heads for pre-training (`cls/`) are left out. Ends the program if a variable is missing, left over or
    of another shape.
    """
    reader = tf.train.load_checkpoint(os.path.join(folder, "bert_model.ckpt"))
    variables = {f"bert/{name}": variable for name, variable in model.published().items()}
    ours = {name: list(variable.shape) for name, variable in variables.items()}
    theirs = {
        name: shape for name, shape in reader.get_variable_to_shape_map().items() if name.startswith("bert/")
    }
    wrong = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if wrong:
        name = wrong[0]
        raise SystemExit(
            f"{folder} does not fit: {len(wrong)} variables, such as {name}: "
            f"{theirs.get(name, 'none')} there, {ours.get(name, 'none')} here."
        )
    for name, variable in variables.items():
        variable.assign(reader.get_tensor(name))
    say(f"{len(variables)} variables from {folder}")


if __name__ == "__main__":
    main()
