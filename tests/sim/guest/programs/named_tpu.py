"""Worker 0 of a simulated v3-32 reduced to four cores finds the TPU by the node's name; prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf


def main() -> None:
    seen: dict[str, Any] = {}
    try:
        tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver("local"))
    except tf.errors.NotFoundError as error:
        seen["local"] = str(error)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    seen["master"] = resolver.master()
    seen["workers"] = len(resolver.cluster_spec().as_dict()["worker"])
    tf.config.experimental_connect_to_cluster(resolver)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    seen["tasks"] = topology.num_tasks
    seen["devices"] = [device.name for device in tf.config.list_logical_devices("TPU")]
    seen["accelerators"] = resolver.num_accelerators()
    with tf.device("/job:worker/replica:0/task:2/device:TPU:0"):
        seen["placed"] = tf.zeros(1).device
    strategy = tf.distribute.TPUStrategy(resolver)
    seen["replicas"] = strategy.num_replicas_in_sync
    seen["hosts"] = strategy.extended.num_hosts
    tf.config.experimental_connect_to_host("grpc://10.0.0.2:8470")
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
