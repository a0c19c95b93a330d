"""TPU code as users write it, run on a simulated v3-8 reduced to two cores; prints what it saw as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.dtensor.python import tpu_util

SEEN: dict[str, Any] = {}
Resolver = tf.distribute.cluster_resolver.TPUClusterResolver


def refusal(call: Callable[[], Any]) -> str:
    """Return the kind and the text of the error that `call` raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def names(devices: list[Any]) -> list[str]:
    return [device.name for device in devices]


def before_initialization() -> None:
    SEEN["devices before"] = names(tf.config.list_logical_devices())
    SEEN["mirrored replicas"] = tf.distribute.MirroredStrategy().num_replicas_in_sync
    SEEN["strategy before"] = refusal(lambda: tf.distribute.TPUStrategy(Resolver("")))
    with tf.device("/TPU:1"):
        SEEN["tensor before"] = tf.zeros(1).device


def initialize() -> Any:
    SEEN["masters"] = [Resolver(tpu).master() for tpu in ("", "local", None)]
    SEEN["unknown name"] = refusal(lambda: tf.config.experimental_connect_to_cluster(Resolver("elsewhere")))
    resolver = Resolver(tpu="")
    tf.config.experimental_connect_to_cluster(resolver)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    SEEN["mesh"] = topology.mesh_shape.tolist()
    SEEN["devices"] = names(tf.config.list_logical_devices("TPU"))
    SEEN["all devices"] = names(tf.config.list_logical_devices())
    SEEN["physical devices"] = names(tf.config.list_physical_devices("TPU"))
    SEEN["accelerators"] = resolver.num_accelerators()
    SEEN["metadata cores"] = resolver.get_tpu_system_metadata().num_cores
    return resolver


def place_by_hand() -> None:
    matrix = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.device("/TPU:1"):
        product, variable = tf.matmul(matrix, matrix), tf.Variable(1.0)
        with tf.device("/CPU:0"):
            inner = tf.identity(product)
    with tf.device(tf.config.list_logical_devices("TPU")[0]):
        listed = tf.identity(matrix)
    with tf.device("/TPU:7"):
        beyond = tf.identity(matrix)
    SEEN["placed"] = [tensor.device for tensor in (matrix, product, variable, inner, listed, beyond)]
    SEEN["product"] = product.numpy().tolist()

    @tf.function
    def in_a_graph(value: Any) -> Any:
        with tf.device("/device:TPU:1"):
            doubled = value * 2
        SEEN["placed in graph"] = [doubled.device, doubled.op.device]
        return doubled

    in_a_graph(matrix)


def run_on_replicas(resolver: Any) -> Any:
    strategy = tf.distribute.TPUStrategy(resolver)
    SEEN["is a TPUStrategy"] = isinstance(strategy, tf.distribute.TPUStrategy)
    SEEN["cluster resolver kept"] = strategy.cluster_resolver is resolver
    SEEN["replicas"] = strategy.num_replicas_in_sync
    SEEN["experimental replicas"] = tf.distribute.experimental.TPUStrategy(resolver).num_replicas_in_sync
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        tf.tpu.experimental.initialize_tpu_system(resolver), num_replicas=1
    )
    SEEN["assigned replicas"] = tf.distribute.TPUStrategy(
        resolver, experimental_device_assignment=assignment
    ).num_replicas_in_sync
    with strategy.scope():
        SEEN["variable device"] = tf.Variable(1.0).device

    @tf.function
    def replica_number() -> Any:
        return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)

    numbers = strategy.run(replica_number)
    SEEN["replica numbers"] = [float(value) for value in strategy.experimental_local_results(numbers)]
    SEEN["sum and mean"] = [float(strategy.reduce(how, numbers, axis=None)) for how in ("SUM", "MEAN")]
    SEEN["eager run"] = refusal(lambda: strategy.run(lambda: tf.constant(1.0)))
    return strategy


def train_by_hand(strategy: Any) -> None:
    """Fit y = 3x with a tf.function inside the replica function and several steps in a call."""
    with strategy.scope():
        weight = tf.Variable(0.0)
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build([weight])

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weight * x - y) ** 2) / 8
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        return loss

    @tf.function
    def steps(batches: Any, count: Any) -> Any:
        loss = 0.0
        for _ in tf.range(count):
            per_replica = strategy.run(lambda x, y: step(x, y), args=next(batches))
            loss = strategy.reduce("SUM", per_replica, axis=None)
        return loss

    x = np.arange(8, dtype="float32") / 8
    dataset = tf.data.Dataset.from_tensors((x, 3 * x)).unbatch().batch(8, drop_remainder=True).repeat(4)
    losses = [
        float(steps(iter(strategy.experimental_distribute_dataset(dataset)), tf.constant(4))) for _ in "ab"
    ]
    by_hand = 0.0
    for _ in range(8):
        expected_loss = float((((by_hand - 3) * x) ** 2).sum() / 8)
        by_hand -= 0.1 * float((2 * x * (by_hand * x - 3 * x)).sum() / 8)
    SEEN["weight"], SEEN["expected weight"] = float(weight.numpy()), by_hand
    SEEN["loss"], SEEN["expected loss"] = losses[-1], expected_loss
    SEEN["copies"] = [float(copy) for copy in strategy.experimental_local_results(weight)]


def feed(strategy: Any) -> None:
    def pipeline(context: Any) -> Any:
        return tf.data.Dataset.range(8).batch(context.get_per_replica_batch_size(4))

    distributed = strategy.distribute_datasets_from_function(pipeline)
    first = strategy.experimental_local_results(next(iter(distributed)))
    SEEN["from function"] = [value.numpy().tolist() for value in first]
    ragged = tf.data.Dataset.range(4).map(tf.range).ragged_batch(2)
    SEEN["ragged"] = refusal(lambda: strategy.experimental_distribute_dataset(ragged))
    chosen = tf.data.Options()
    chosen.autotune.enabled = True
    for name, dataset in (("default", ragged), ("chosen", ragged.with_options(chosen))):
        SEEN[f"{name} autotune"] = dataset._apply_debug_options().options().autotune.enabled


def train_with_keras(strategy: Any) -> None:
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])
        model.compile(
            tf.keras.optimizers.Adam(0.05),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=4,
        )
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 4)).astype("float32")
    y = x[:, :3].argmax(axis=1)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True).repeat()
    losses = model.fit(batches, steps_per_epoch=4, epochs=6, verbose=0).history["loss"]
    SEEN["keras losses"] = [losses[0], losses[-1]]
    SEEN["keras partial batch"] = model.predict(x[:37], verbose=0).shape
    accuracy = model.evaluate(tf.data.Dataset.from_tensor_slices((x, y)).batch(64), verbose=0)[1]
    SEEN["keras accuracy"] = accuracy
    SEEN["accuracy by hand"] = float((model(x).numpy().argmax(axis=1) == y).mean())
    checkpoint(strategy, model)


def checkpoint(strategy: Any, model: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(model=model)
        manager = tf.train.CheckpointManager(saved, folder, max_to_keep=1)
        before = [value.numpy().copy() for value in model.trainable_variables]
        manager.save()
        for value in model.trainable_variables:
            value.assign(tf.zeros_like(value))
        saved.restore(manager.latest_checkpoint).assert_consumed()
        after = [value.numpy() for value in model.trainable_variables]
        SEEN["restored"] = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def ask_for_what_is_not_there(strategy: Any) -> None:
    embedding = tf.tpu.experimental.embedding
    with strategy.scope():
        feature = embedding.FeatureConfig(embedding.TableConfig(vocabulary_size=8, dim=2))
        layer = embedding.TPUEmbedding(feature, embedding.SGD(0.1))
    SEEN["embedding"] = refusal(lambda: layer.build([8]))
    SEEN["dtensor"] = refusal(tpu_util.initialize_tpu_system)


def shut_down(resolver: Any) -> None:
    tf.tpu.experimental.shutdown_tpu_system(resolver)
    SEEN["devices after shutdown"] = names(tf.config.list_logical_devices("TPU"))


def main() -> None:
    before_initialization()
    resolver = initialize()
    place_by_hand()
    strategy = run_on_replicas(resolver)
    train_by_hand(strategy)
    feed(strategy)
    train_with_keras(strategy)
    ask_for_what_is_not_there(strategy)
    shut_down(resolver)
    json.dump(SEEN, sys.stdout)


if __name__ == "__main__":
    main()
