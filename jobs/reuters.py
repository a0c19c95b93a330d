# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "reuters"
# framework = "tensorflow"
# ///
"""Classify newswire stories by topic with a small convolutional network, with Keras' `fit`.

    tpuctl data upload reuters FOLDER --tokens words --vocabulary 30000 --length 300
    tpuctl submit jobs/reuters.py                              on a Cloud TPU
    python jobs/reuters.py --data FOLDER --out FOLDER          on this machine, without a TPU

The classic version of this program feeds a softmax to a loss that expects logits. Its validation accuracy is
0.575 (top 5: 0.714). Here the last layer returns logits. (Keras 3 finds the logits before a softmax by
itself; TensorFlow's own losses do not.)

The records have `tokens`, int64 of a fixed length, 0 for padding, and `label`, int64. The sizes of
vocabulary, texts and classes come from the files of the dataset.
"""

from __future__ import annotations

import tensorflow as tf
import training


def main() -> None:
    """Train, and report the accuracy and the top-5 accuracy on the test stories after each epoch."""
    options = training.parser(__doc__, epochs=10, batch=32, steps_per_call=20).parse_args()
    strategy = training.choose_strategy(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    texts = training.describe_texts(options.data)
    batch = training.global_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model(texts)
        optimizer = tf.keras.optimizers.Nadam()
        optimizer.build(model.trainable_variables)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.add_estimate(lambda: build_model(texts), (texts.length,), tf.int32)
    with strategy.scope():
        model.compile(
            optimizer=optimizer,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[
                tf.keras.metrics.SparseCategoricalAccuracy("accuracy"),
                tf.keras.metrics.SparseTopKCategoricalAccuracy(5, "top_5"),
            ],
            steps_per_execution=progress.steps_per_call,
            jit_compile=False,  # a TPU compiles each replica's step by itself
        )

    validation = strategy.distribute_datasets_from_function(
        lambda context: training.read_once(test, context, batch, texts.parse)
    )
    progress.instrument(model, validation)
    for arguments in progress.fit_arguments(options.epochs):
        batches = strategy.distribute_datasets_from_function(
            lambda context: training.read(
                train, context, batch, texts.parse, seed=options.seed, step=progress.step
            )
        )
        model.fit(batches, callbacks=[progress], shuffle=False, verbose=0, **arguments)
    progress.save_weights(model, "reuters")
    progress.finish()


def build_model(texts: training.Texts) -> tf.keras.Model:
    """Return the untrained network: tokens (batch, length) int32 to logits (batch, classes)."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((texts.length,), dtype="int32"),
            layers.Embedding(texts.vocabulary, 7),
            layers.Conv1D(64, 5, activation="relu"),
            layers.MaxPooling1D(2),
            layers.Conv1D(32, 3, activation="relu"),
            layers.MaxPooling1D(2),
            layers.Flatten(),
            layers.Dense(texts.classes, dtype="float32"),
        ]
    )


if __name__ == "__main__":
    main()
