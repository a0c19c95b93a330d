"""Worker 0 of a simulated v3-32 reduced to four cores finds the TPU by the node's name; prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf


def main() -> None:
    report: dict[str, Any] = {}
    try:
        tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver("local"))
    except tf.errors.NotFoundError as error:
        report["local"] = str(error)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    report["master"] = resolver.master()
    report["workers"] = len(resolver.cluster_spec().as_dict()["worker"])
    tf.config.experimental_connect_to_cluster(resolver)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    report["tasks"] = topology.num_tasks
    report["devices"] = [device.name for device in tf.config.list_logical_devices("TPU")]
    report["accelerators"] = resolver.num_accelerators()
    with tf.device("/job:worker/replica:0/task:2/device:TPU:0"):
        report["placed"] = tf.zeros(1).device
    strategy = tf.distribute.TPUStrategy(resolver)
    report["replicas"] = strategy.num_replicas_in_sync
    report["hosts"] = strategy.extended.num_hosts
    tf.config.experimental_connect_to_host("grpc://10.0.0.2:8470")
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
