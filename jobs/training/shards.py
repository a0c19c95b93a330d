"""Batches from TFRecord shards: each host reads its own, in an order set by the seed and the step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class Split(NamedTuple):
    """The shards of one split, and the number of examples in each shard."""

    files: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def examples(self) -> int:
        """Number of examples in all shards."""
        return sum(self.lengths)

    def steps(self, batch: int) -> int:
        """Return the number of full batches in an epoch; exits the program without any."""
        if self.examples < batch:
            raise SystemExit(f"The {self.examples} training examples do not fill a batch of {batch}.")
        return self.examples // batch

    def of_host(self, host: int, hosts: int) -> Split:
        """Return every `hosts`-th shard, from shard `host` on; exits the program if a host has none."""
        if len(self.files) < hosts:
            raise SystemExit(
                f"{len(self.files)} shards are too few for {hosts} hosts. Create enough with"
                " `tpuctl data upload --for TYPE`."
            )
        return Split(self.files[host::hosts], self.lengths[host::hosts])


def find_split(data: str | None, *names: str) -> Split:
    """Return the first split of `names` that exists in the dataset folder `data`.

    The number of examples comes from dataset_info.json; without that file the examples are counted. Exits the
    program if the dataset has none of these splits.
    """
    if not data:
        raise SystemExit("No dataset was given. Set TPUCTL_DATA_DIR, or give --data FOLDER.")
    for name in names:
        files = tuple(sorted(tf.io.gfile.glob(os.path.join(data, f"*-{name}.tfrecord-*"))))
        if files:
            return Split(files, _lengths(data, name, files))
    raise SystemExit(f"There are no files *-{names[0]}.tfrecord-* in {data}.")


def read_text(data: str, name: str) -> str:
    """Return the text of a small file of the dataset, such as `label.labels.txt` (one class per line)."""
    with tf.io.gfile.GFile(os.path.join(data, name)) as file:
        return str(file.read())


def global_batch(batch: int, strategy: tf.distribute.Strategy) -> int:
    """Round `batch` down to a multiple of the number of replicas; each replica gets at least one example."""
    replicas: int = strategy.num_replicas_in_sync
    return max(batch // replicas, 1) * replicas


def read(
    split: Split,
    context: tf.distribute.InputContext,
    batch: int,
    parse: Callable[..., Any],
    *,
    seed: int,
    step: int = 0,
    augment: Callable[..., Any] | None = None,
    cache: bool = True,
    shuffle: int | None = None,
) -> tf.data.Dataset:
    """Return an endless dataset of the batches for this host's replicas, beginning after `step` steps.

    Each host reads its own shards. The stages are: parse, cache in memory (`cache`), shuffle (all examples,
    or through a buffer of `shuffle` examples), repeat, augment, batch, prefetch.

    `batch` is the global batch size. `parse(record)` returns an example as a tuple. `augment(*example, seed)`
    does everything random; its seed is int64 of shape (2,), for stateless operations, and depends only on the
    position of the example in the stream. So a resumed run sees the same batches as one that never stopped.
    Deterministic preprocessing is cheaper in the model, which gets full batches: a map over single small
    examples costs the host 0.1 ms each.
    """
    host, hosts = context.input_pipeline_id, context.num_input_pipelines
    own = split.of_host(host, hosts)
    first, offset = divmod(step * (batch // hosts), own.examples)
    cached = _records(own.files).map(parse, num_parallel_calls=tf.data.AUTOTUNE).cache() if cache else None

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        examples = _records(own.files, seed + epoch) if cached is None else cached
        order = examples.shuffle(shuffle or own.examples, seed=seed + epoch, reshuffle_each_iteration=False)
        if augment:
            order = order.enumerate(epoch * own.examples)
        return order.skip(tf.where(epoch == first, tf.constant(offset, tf.int64), 0))

    def finish(position: tf.Tensor, record: Any) -> Any:
        example = parse(record) if cached is None else record
        return augment(*example, tf.stack([seed, position * hosts + host]))

    stream = tf.data.Dataset.range(first, tf.int64.max).flat_map(one_epoch)
    if augment:
        stream = stream.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    elif cached is None:
        stream = stream.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    per_replica = context.get_per_replica_batch_size(batch)
    return stream.batch(per_replica, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def read_once(
    split: Split,
    context: tf.distribute.InputContext,
    batch: int,
    parse: Callable[..., Any],
    *,
    cache: bool = True,
) -> tf.data.Dataset:
    """Return the batches for this host's replicas with every example exactly once, as (*example, weight).

    The last batches are padded with zeros of weight 0, so that all batches have the same shape and all hosts
    have the same number of batches. The weights of the examples are equal and add up to the number of
    examples and padding together, so that a mean over both (Keras' mean of losses) is the mean over the
    examples.
    """
    host, hosts = context.input_pipeline_id, context.num_input_pipelines
    sizes = [split.of_host(number, hosts).examples for number in range(hosts)]
    padded = -(-max(sizes) // (batch // hosts)) * (batch // hosts)
    weight = tf.constant(padded * hosts / split.examples, tf.float32)

    records = _records(split.of_host(host, hosts).files)
    examples = records.map(lambda record: (*parse(record), weight), num_parallel_calls=tf.data.AUTOTUNE)
    padding = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), examples.element_spec)
    filled = examples.concatenate(tf.data.Dataset.from_tensors(padding).repeat(padded - sizes[host]))
    batches = filled.batch(context.get_per_replica_batch_size(batch), drop_remainder=True)
    return (batches.cache() if cache else batches).prefetch(tf.data.AUTOTUNE)


def _records(files: tuple[str, ...], seed: tf.Tensor | None = None) -> tf.data.Dataset:
    """Return the records of all files, read in parallel, in an order that depends only on the seed."""
    names = tf.data.Dataset.from_tensor_slices(list(files))
    if seed is not None:
        names = names.shuffle(len(files), seed=seed, reshuffle_each_iteration=False)
    return names.interleave(
        tf.data.TFRecordDataset, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _lengths(data: str, name: str, files: tuple[str, ...]) -> tuple[int, ...]:
    if tf.io.gfile.exists(os.path.join(data, "dataset_info.json")):
        splits = json.loads(read_text(data, "dataset_info.json"))["splits"]
        lengths = [split["shardLengths"] for split in splits if split["name"] == name]
        if lengths and len(lengths[0]) == len(files):
            return tuple(map(int, lengths[0]))
    return tuple(sum(1 for _ in tf.data.TFRecordDataset(file)) for file in files)
