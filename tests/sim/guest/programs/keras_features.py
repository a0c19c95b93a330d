"""What training code uses of Keras, 2 or 3, run on two simulated cores; prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SEEN: dict[str, Any] = {}
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
keras = tf.keras
FOLDER = Path(tempfile.mkdtemp())
RNG = np.random.default_rng(1)
X = RNG.normal(size=(101, 4)).astype("float32")
Y = X[:, :3].argmax(axis=1)


def refusal(call: Callable[[], Any]) -> str:
    """Return the kind and the text of the error that `call` raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def new_model(strategy: Any, **options: Any) -> Any:
    layers = keras.layers
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.InputLayer((4,)),
                layers.Dense(16, activation="relu"),
                layers.Dropout(0.1),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.03), loss, metrics=["accuracy"], **options)
    return model


def falls(losses: list[float]) -> bool:
    return bool(np.isfinite(losses).all() and losses[-1] < losses[0])


def train_on_arrays(strategy: Any) -> None:
    """The last batch has 5 examples; 2 replicas get 3 and 2 of them."""
    model = new_model(strategy, steps_per_execution=3)
    SEEN["arrays"] = falls(model.fit(X, Y, batch_size=32, epochs=3, verbose=0).history["loss"])
    numbers = [model.evaluate(X, Y, batch_size=size, verbose=0)[1] for size in (32, 100)]
    SEEN["accuracies"] = [*numbers, float((model(X).numpy().argmax(axis=1) == Y).mean())]
    SEEN["predicted"] = model.predict(X, batch_size=32, verbose=0).shape
    SEEN["one batch that does not divide"] = refusal(lambda: model.fit(X, Y, batch_size=101, verbose=0))


def compile_by_xla(strategy: Any) -> None:
    model = new_model(strategy, jit_compile=True)
    SEEN["jit_compile"] = falls(model.fit(X, Y, batch_size=32, epochs=2, verbose=0).history["loss"])


def mix_precision(strategy: Any) -> None:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = new_model(strategy)
    keras.mixed_precision.set_global_policy("float32")
    SEEN["mixed"] = falls(model.fit(X, Y, batch_size=32, epochs=2, verbose=0).history["loss"])
    SEEN["mixed types"] = [str(model.layers[-1].compute_dtype), str(model.trainable_variables[0].dtype)]


def save_and_load(strategy: Any) -> None:
    model = new_model(strategy)
    model.fit(X, Y, batch_size=32, verbose=0)
    expected = model.predict(X, verbose=0)
    model.save_weights(FOLDER / "model.weights.h5")
    other = new_model(strategy)
    other.load_weights(FOLDER / "model.weights.h5")
    SEEN["weights loaded"] = bool(np.allclose(other.predict(X, verbose=0), expected, atol=1e-6))
    model.save(FOLDER / "model.keras")
    with strategy.scope():
        again = keras.models.load_model(FOLDER / "model.keras")
    SEEN["model loaded"] = bool(np.allclose(again.predict(X, verbose=0), expected, atol=1e-6))
    tf.saved_model.save(model, str(FOLDER / "saved"))
    served = tf.saved_model.load(str(FOLDER / "saved")).signatures["serving_default"]
    (answer,) = served(tf.constant(X)).values()
    SEEN["served"] = bool(np.allclose(answer.numpy(), expected, atol=1e-6))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, FOLDER / "checkpoints", max_to_keep=2)
    for _ in range(3):
        manager.save()
    SEEN["kept"] = [Path(path).name for path in manager.checkpoints]
    model.set_weights([np.zeros_like(value) for value in model.get_weights()])
    checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    SEEN["restored"] = bool(np.allclose(model.predict(X, verbose=0), expected, atol=1e-6))


class Interrupted(Exception):
    """What ends a training in its third epoch."""


def go_on_after_an_interruption(strategy: Any) -> None:
    epochs: list[int] = []

    class Interruption(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            epochs.append(epoch)
            if len(epochs) == 3:
                raise Interrupted

    backup = keras.callbacks.BackupAndRestore(str(FOLDER / "backup"))
    board = keras.callbacks.TensorBoard(str(FOLDER / "board"))
    for _ in range(2):
        try:
            callbacks = [backup, board, Interruption()]
            new_model(strategy).fit(X[:96], Y[:96], batch_size=32, epochs=4, verbose=0, callbacks=callbacks)
        except Interrupted:
            continue
    SEEN["epochs"] = epochs
    SEEN["event files"] = len(list((FOLDER / "board").rglob("events.out.tfevents.*"))) > 0


def update_in_branches_and_loops(strategy: Any) -> None:
    """Each of 2 replicas gives a gradient of 2w, so that a step of rate 0.1 makes w 0.6 w."""
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([weight])

    def descend(scale: Any) -> None:
        with tf.GradientTape() as tape:
            loss = weight * weight * scale
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    @tf.function
    def if_finite(scale: Any) -> None:
        def step(scale: Any) -> None:
            if tf.math.is_finite(scale):
                descend(scale)

        strategy.run(step, args=(scale,))

    @tf.function
    def three_times(scale: Any) -> None:
        def step(scale: Any) -> None:
            for _ in tf.range(3):
                descend(scale)

        strategy.run(step, args=(scale,))

    def copies() -> list[float]:
        return [float(copy) for copy in strategy.experimental_local_results(weight)]

    if_finite(tf.constant(np.inf))
    SEEN["branch not taken"] = copies()
    if_finite(tf.constant(1.0))
    SEEN["branch taken"] = copies()
    three_times(tf.constant(1.0))
    SEEN["loop"] = copies()
    SEEN["updates"] = int(optimizer.iterations.numpy())


def use_what_keras_3_has(strategy: Any) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.1, gradient_accumulation_steps=2), loss)
    SEEN["accumulated"] = falls(model.fit(X[:96], Y[:96], batch_size=32, epochs=4, verbose=0).history["loss"])


def compile_functions_by_xla(strategy: Any) -> None:
    with strategy.scope():
        weight = tf.Variable(2.0)

    @tf.function(jit_compile=True)
    def product(value: Any) -> Any:
        return weight * value

    @tf.function
    def nested(value: Any) -> Any:
        return strategy.run(lambda x: product(x) + 1.0, args=(value,))

    @tf.function(jit_compile=True)
    def around(value: Any) -> Any:
        return strategy.run(lambda x: weight * x, args=(value,))

    three = tf.constant(3.0)
    for name, result in (
        ("itself", strategy.run(product, args=(three,))),
        ("nested", nested(three)),
        ("around", around(three)),
    ):
        SEEN[f"jit {name}"] = [float(copy) for copy in strategy.experimental_local_results(result)]


def main() -> None:
    warnings.simplefilter("ignore")
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    SEEN["worker devices"] = strategy.extended.worker_devices
    SEEN["keras"] = "tf_keras" if LEGACY else "keras"
    SEEN["module"] = keras.Model.__module__.partition(".")[0]
    for part in (
        train_on_arrays,
        compile_by_xla,
        mix_precision,
        save_and_load,
        go_on_after_an_interruption,
        update_in_branches_and_loops,
        compile_functions_by_xla,
        *([] if LEGACY else [use_what_keras_3_has]),
    ):
        part(strategy)
    json.dump(SEEN, sys.stdout)


if __name__ == "__main__":
    main()
