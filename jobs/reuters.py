# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "reuters"
# framework = "tensorflow"
# ///
"""Tell the topic of a newswire story by a small convolutional network over its words, with Keras' `fit`.

    tpuctl data upload reuters FOLDER --tokens words --vocabulary 30000 --length 300
    tpuctl submit jobs/reuters.py                              on a Cloud TPU
    python jobs/reuters.py --data FOLDER --out FOLDER          on this machine, without a TPU

The classic version of this program gives its softmax to a loss that expects logits, and stays at 57.5 % of
the test stories (top 5: 71.4 %). Here the last layer gives logits. (Keras 3 takes the logits from behind a
softmax by itself; TensorFlow's own losses do not.)

The records hold `tokens`, int64 of a fixed length, 0 for padding, and `label`, int64. Vocabulary, length and
classes are those of the dataset's own files.
"""

from __future__ import annotations

import tensorflow as tf
import training


def main() -> None:
    """Train, and say after each epoch how many topics of the test stories are right, and in the top five."""
    options = training.parser(__doc__, epochs=10, batch=32, steps_per_call=20).parse_args()
    strategy = training.find_devices(options.seed, options.precision)
    train, test = training.find_split(options.data, "train"), training.find_split(options.data, "test")
    texts = training.describe_texts(options.data)
    batch = training.whole_batch(options.batch, strategy)
    steps = train.steps(batch)

    with strategy.scope():
        model = build_model(texts)
        optimizer = tf.keras.optimizers.Nadam()
        optimizer.build(model.trainable_variables)
    progress = training.Progress(options, steps, batch, optimizer=optimizer, model=model)
    progress.expect(lambda: build_model(texts), (texts.length,), tf.int32)
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
    progress.watch(model, validation)
    for part in progress.parts(options.epochs):
        batches = strategy.distribute_datasets_from_function(
            lambda context: training.read(
                train, context, batch, texts.parse, seed=options.seed, step=progress.step
            )
        )
        model.fit(batches, callbacks=[progress], shuffle=False, verbose=0, **part)
    progress.save_weights(model, "reuters")
    progress.finish()


def build_model(texts: training.Texts) -> tf.keras.Model:
    """Return the untrained network; its outputs are logits."""
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
