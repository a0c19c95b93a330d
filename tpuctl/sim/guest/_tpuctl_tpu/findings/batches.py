"""Checks batch sizes: batches that do not divide among the replicas, and a smaller last batch."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any

from ..hooks import MissingHookError, TensorFlow
from .recorder import Findings

_ABSENT = object()
_KERAS = ("keras.", "tf_keras.")


class Batches:
    """The sizes of a distributed dataset's batches, reported before or while the program reads it."""

    def __init__(self, tensorflow: TensorFlow, findings: Findings) -> None:
        self._tensorflow = tensorflow
        self._findings = findings
        self._batched = (tensorflow.batched._BatchDataset, tensorflow.batched._ParallelBatchDataset)
        # what may follow the batching and leaves every batch, and its size, as it is
        self._passing = (
            tensorflow.mapped._MapDataset,
            tensorflow.mapped._ParallelMapDataset,
            tensorflow.prefetched._PrefetchDataset,
            tensorflow.repeated._RepeatDataset,
            tensorflow.shuffled._ShuffleDataset,
            tensorflow.cached.CacheDataset,
            tensorflow.datasets._OptionsDataset,
        )

    def check_global(self, dataset: Any, replicas: int) -> None:
        """Check that the batch divides among the replicas."""
        size = self._global_size(dataset)
        if size > 0 and size % replicas:
            text = f"the global batch of {size} does not divide evenly among {replicas} replicas"
            self._findings.slow("UNEVEN_BATCH", text)

    def check_last(self, dataset: Any) -> None:
        """Check the last batch, where Keras is about to read all of them."""
        if not _keras_reads_all():
            return
        sizes = _last_and_full_of_arrays()
        if sizes:
            self._report_partial(*sizes)
            return
        tf = self._tensorflow.tf
        while isinstance(dataset, self._passing):
            dataset = self._attribute(dataset, "_input_dataset")
        if not isinstance(dataset, self._batched):
            return
        size = tf.get_static_value(self._attribute(dataset, "_batch_size"))
        dropped = tf.get_static_value(self._attribute(dataset, "_drop_remainder"))
        examples = int(self._attribute(dataset, "_input_dataset").cardinality())
        if size and not dropped and examples > size and examples % size:
            self._report_partial(examples % size, size)

    def watch_iteration(self, strategy: type) -> None:
        """Look at each batch that the program itself takes from an iterator of `strategy`."""
        iterator = self._tensorflow.iterators.DistributedIteratorBase
        take, first_sizes = iterator.__next__, weakref.WeakKeyDictionary[object, int]()

        def take_checked(distributed: Any) -> object:
            batch = take(distributed)
            if isinstance(distributed._strategy, strategy) and self._tensorflow.context.executing_eagerly():
                size = self._size(batch)
                first = first_sizes.setdefault(distributed, size)
                if size < first:
                    self._report_partial(size, first)
            return batch

        iterator.__next__ = take_checked

    def _report_partial(self, size: int, full: int) -> None:
        text = f"the last of the batches has {size} of {full} examples: a second compilation"
        self._findings.slow("PARTIAL_BATCH", text)

    def _global_size(self, dataset: Any) -> int:
        """By the function that the strategy itself divides with; -1 where it does not know."""
        tf = self._tensorflow.tf
        shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(dataset.element_spec)]
        if not tf.executing_eagerly() or not all(shape is not None and shape.rank for shape in shapes):
            return -1
        return int(self._tensorflow.rebatching.compute_batch_size(dataset))

    def _size(self, batch: object) -> int:
        """How many examples the replicas got together."""
        leaf = next(iter(self._tensorflow.tf.nest.flatten(batch)), None)
        copies = leaf.values if isinstance(leaf, self._tensorflow.values.PerReplica) else (leaf,)
        shapes = [getattr(copy, "shape", None) for copy in copies]
        return sum(shape[0] for shape in shapes if shape is not None and shape.rank and shape[0] is not None)

    def _attribute(self, dataset: Any, name: str) -> Any:
        if not hasattr(dataset, name):
            version = self._tensorflow.tf.__version__
            raise MissingHookError(version, [f"{type(dataset).__module__}.{type(dataset).__name__}.{name}"])
        return getattr(dataset, name)


def _last_and_full_of_arrays() -> tuple[int, int] | None:
    """The sizes of the last and the other batches where Keras cuts arrays into batches, and they differ."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_KERAS):
            reader = frame.f_locals.get("self")
            adapter = getattr(reader, "data_adapter", None) or getattr(reader, "_adapter", None)
            if adapter is not None:
                last, full = _known(adapter, "partial_batch_size"), _known(adapter, "batch_size")
                batches = _known(adapter, "num_batches") or _known(adapter, "get_size")
                return (last, full) if last and full and batches > 1 else None
        frame = frame.f_back
    return None


def _known(adapter: object, name: str) -> int:
    """A number that an adapter knows, Keras 3's as an attribute, Keras 2's by a method; 0 for a dataset's."""
    value = getattr(adapter, name, None)
    return int((value() if callable(value) else value) or 0)


def _keras_reads_all() -> bool:
    """Whether this is inside a fit, evaluate or predict that ends with the data, not after some steps."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_KERAS):
            steps = frame.f_locals.get("steps_per_epoch", _ABSENT)
            if steps is _ABSENT:
                steps = getattr(frame.f_locals.get("self"), "steps_per_epoch", _ABSENT)
            if steps is not _ABSENT:
                return steps is None
        frame = frame.f_back
    return False
