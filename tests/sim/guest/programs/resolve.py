"""The ways in which programs name their TPU, each in turn; prints what each found as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Resolver = tf.distribute.cluster_resolver.TPUClusterResolver
VARIABLES = ("TPU_NAME", "TPU_CONFIG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
ADDRESS = "grpc://10.0.0.2:8470"
WAYS: dict[str, tuple[dict[str, str], Callable[[], Any]]] = {
    "local": ({}, lambda: Resolver("local")),
    "empty": ({}, lambda: Resolver("")),
    "empty, TPU_NAME=local": ({"TPU_NAME": "local"}, lambda: Resolver(tpu="")),
    "nothing, TPU_NAME=name": ({"TPU_NAME": "mine"}, Resolver),
    "nothing, TPU_NAME=address": ({"TPU_NAME": ADDRESS}, Resolver),
    "nothing, TPU_CONFIG": ({"TPU_CONFIG": '{"tpu_node_name": "mine"}'}, Resolver),
    "nothing, GKE": ({"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": ADDRESS}, Resolver),
    "name": ({}, lambda: Resolver("mine", zone="europe-west4-a", project="sim-project")),
    "another name": ({}, lambda: Resolver("other")),
    "address": ({}, lambda: Resolver(f"grpc://{os.environ['COLAB_TPU_ADDR']}")),
}


def use(resolve: Callable[[], Any]) -> Any:
    """Connect, initialise, count and shut down; return what was there, or the error."""
    try:
        resolver = resolve()
        tf.config.experimental_connect_to_cluster(resolver)
        if resolver.master():
            tf.config.experimental_connect_to_host(resolver.master())
        tf.tpu.experimental.initialize_tpu_system(resolver)
        devices = [device.name for device in tf.config.list_logical_devices("TPU")]
        with tf.device("/TPU:1"):
            placed = tf.zeros(1).device
        replicas = tf.distribute.TPUStrategy(resolver).num_replicas_in_sync
        tf.tpu.experimental.shutdown_tpu_system(resolver)
        after = len(tf.config.list_logical_devices("TPU"))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {"master": resolver.master(), "device": devices[1], "placed": placed, "left": [replicas, after]}


def watch_preemption() -> dict[str, Any]:
    """What TensorFlow's own watchers say on a TPU host."""
    resolver = Resolver("local")
    tf.config.experimental_connect_to_cluster(resolver)  # TensorFlow 2.16's Resolver.connect is broken
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    experimental = tf.distribute.experimental
    watcher = experimental.PreemptionWatcher()
    with strategy.scope():
        value = tf.Variable(1.0)
    with tempfile.TemporaryDirectory() as folder:
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), folder, max_to_keep=1)
        handler = experimental.PreemptionCheckpointHandler(resolver, manager)
        handler.run(lambda: value.assign_add(1.0))
    return {"message": watcher.preemption_message, "ran": float(value.numpy())}


def main() -> None:
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    for logger in (tf.get_logger(), logging.getLogger("absl")):
        logger.addHandler(handler)
    tf.get_logger().setLevel("INFO")
    report = {}
    for name, (variables, resolve) in WAYS.items():
        for variable in VARIABLES:
            os.environ.pop(variable, None)
        os.environ.update(variables)
        report[name] = use(resolve)
    report["preemption"] = watch_preemption()
    report["logged"] = logged
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
