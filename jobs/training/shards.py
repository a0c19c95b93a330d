"""Batches from TFRecord shards: each host reads its own, in an order that depends on seed and step alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class Split(NamedTuple):
    """The shards of one split, and how many examples each of them holds."""

    files: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def examples(self) -> int:
        """All examples."""
        return sum(self.lengths)

    def steps(self, batch: int) -> int:
        """Return the whole batches in an epoch; ends the program when there is none."""
        if self.examples < batch:
            raise SystemExit(f"The {self.examples} training examples do not fill a batch of {batch}.")
        return self.examples // batch

    def of_host(self, host: int, hosts: int) -> Split:
        """Return every `hosts`-th shard from the `host`-th on; ends the program when there is none."""
        if len(self.files) < hosts:
            raise SystemExit(
                f"{len(self.files)} shards are too few for {hosts} hosts: make them with"
                " `tpuctl data upload --for TYPE`."
            )
        return Split(self.files[host::hosts], self.lengths[host::hosts])


def find_split(data: str | None, *names: str) -> Split:
    """Return the first of the splits `names` that the dataset in the folder `data` has.

    Its description knows the number of examples; without one they are counted. Ends the program when there
    is no such split.
    """
    if not data:
        raise SystemExit("Where is the dataset? Set TPUCTL_DATA_DIR, or give --data FOLDER.")
    for name in names:
        files = tuple(sorted(tf.io.gfile.glob(os.path.join(data, f"*-{name}.tfrecord-*"))))
        if files:
            return Split(files, _lengths(data, name, files))
    raise SystemExit(f"There are no files *-{names[0]}.tfrecord-* in {data}.")


def read_text(data: str, name: str) -> str:
    """Return the text of a small file of the dataset, such as `label.labels.txt`: one class a line."""
    with tf.io.gfile.GFile(os.path.join(data, name)) as file:
        return str(file.read())


def whole_batch(batch: int, strategy: tf.distribute.Strategy) -> int:
    """Return the largest batch up to `batch` that gives each replica as many examples, at least one."""
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
    """Return the batches of a host's replicas, without end, from the one after `step` on.

    Each host reads its own shards: parse and keep in memory (`cache`), shuffle (over all, or by a buffer of
    `shuffle` examples), repeat, augment, batch, prefetch. `parse(record)` gives an example, a tuple; what is
    random is done by `augment(*example, seed)`, whose seed, int64 of shape (2,) for stateless operations, is
    that of the example's place in the stream. So a run that was stopped goes on with the batches it would
    have seen. `batch` is that of all replicas on all hosts. What needs no randomness is cheaper in the model,
    which gets whole batches: a map of single small examples costs the host 0.1 ms each.
    """
    host, hosts = context.input_pipeline_id, context.num_input_pipelines
    own = split.of_host(host, hosts)
    first, offset = divmod(step * (batch // hosts), own.examples)
    kept = _records(own.files).map(parse, num_parallel_calls=tf.data.AUTOTUNE).cache() if cache else None

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        examples = _records(own.files, seed + epoch) if kept is None else kept
        mixed = examples.shuffle(shuffle or own.examples, seed=seed + epoch, reshuffle_each_iteration=False)
        if augment:
            mixed = mixed.enumerate(epoch * own.examples)
        return mixed.skip(tf.where(epoch == first, tf.constant(offset, tf.int64), 0))

    def finish(place: tf.Tensor, found: Any) -> Any:
        example = parse(found) if kept is None else found
        return augment(*example, tf.stack([seed, place * hosts + host]))

    stream = tf.data.Dataset.range(first, tf.int64.max).flat_map(one_epoch)
    if augment:
        stream = stream.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    elif kept is None:
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
    """Return batches of a host's replicas that hold every example exactly once, as (*example, weight).

    The last ones are filled up with zeros of weight 0: all have one shape, and all hosts have as many. The
    examples' weights are equal and add up to the number of places, so that a mean over the places, as Keras
    takes it of losses, is one over the examples.
    """
    host, hosts = context.input_pipeline_id, context.num_input_pipelines
    sizes = [split.of_host(one, hosts).examples for one in range(hosts)]
    places = -(-max(sizes) // (batch // hosts)) * (batch // hosts)
    weight = tf.constant(places * hosts / split.examples, tf.float32)

    records = _records(split.of_host(host, hosts).files)
    examples = records.map(lambda one: (*parse(one), weight), num_parallel_calls=tf.data.AUTOTUNE)
    nothing = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), examples.element_spec)
    filled = examples.concatenate(tf.data.Dataset.from_tensors(nothing).repeat(places - sizes[host]))
    batches = filled.batch(context.get_per_replica_batch_size(batch), drop_remainder=True)
    return (batches.cache() if cache else batches).prefetch(tf.data.AUTOTUNE)


def _records(files: tuple[str, ...], seed: tf.Tensor | None = None) -> tf.data.Dataset:
    """Return the records of all files, several read at once, in an order that depends on the seed alone."""
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
