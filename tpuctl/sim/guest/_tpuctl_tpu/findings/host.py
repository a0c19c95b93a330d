"""Checks what the host does around the replicas: scopes, datasets, batches, files and names of devices."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from ..hooks import MissingHookError, TensorFlow
from ..names import DeviceNames
from ..slices import Slice
from ..system import SystemState
from .recorder import Findings


def install(tensorflow: TensorFlow, findings: Findings, state: SystemState, strategy: type) -> None:
    """Look at strategies, at what is made or run outside of them, and at datasets and checkpoints."""
    _check_initialized(findings, state, strategy)
    _check_scope(tensorflow, findings, strategy)
    _check_updates(tensorflow, findings, strategy)
    _check_host_training(tensorflow, findings, strategy)
    _check_datasets(tensorflow, findings, state, strategy)
    _check_checkpoints(tensorflow, findings, state)


def _check_initialized(findings: Findings, state: SystemState, strategy: Any) -> None:
    """The strategy itself refuses."""
    construct = strategy.__init__

    def construct_checked(self: object, *args: object, **options: object) -> None:
        if not state.initialized:
            findings.record("NOT_INITIALIZED", "a TPUStrategy is made before the TPU system is initialized")
        construct(self, *args, **options)

    strategy.__init__ = construct_checked


def _check_scope(tensorflow: TensorFlow, findings: Findings, strategy: type) -> None:
    """TensorFlow itself refuses."""
    refuse = tensorflow.distribute._wrong_strategy_scope

    def record_and_refuse(expected: object, context: Any) -> object:
        if isinstance(expected, strategy) or isinstance(context.strategy, strategy):
            findings.record("OUTSIDE_SCOPE", "variables of strategy.scope() and from outside are mixed")
        return refuse(expected, context)

    tensorflow.distribute._wrong_strategy_scope = record_and_refuse


def _check_updates(tensorflow: TensorFlow, findings: Findings, strategy: type) -> None:
    """An optimizer of the scope that trains a variable from outside: TPUStrategy asks it for its copies."""
    extended = tensorflow.mirrored.MirroredExtended
    update = extended._update

    def update_checked(self: Any, variable: Any, *args: object, **options: object) -> object:
        if isinstance(self._container_strategy(), strategy) and not hasattr(variable, "values"):
            error = AttributeError(f"'{type(variable).__name__}' object has no attribute '_packed_variable'")
            text = f"the optimizer trains {variable.name}, which was made outside its strategy.scope()"
            findings.refuse("OUTSIDE_SCOPE", text, error)
        return update(self, variable, *args, **options)

    extended._update = update_checked


def _check_host_training(tensorflow: TensorFlow, findings: Findings, strategy: Any) -> None:
    """Keras runs a model by the strategy of the scope that it was made in; outside, by the default one."""
    default = tensorflow.distribute._DefaultDistributionStrategy
    run, construct = default.run, strategy.__init__
    constructed = []

    def construct_noted(self: object, *args: object, **options: object) -> None:
        construct(self, *args, **options)
        constructed.append(True)

    def run_checked(self: object, fn: object, *args: object, **options: object) -> object:
        if constructed and not findings.used:
            findings.slow(
                "HOST_TRAINING", "this model was made outside strategy.scope(): it runs on the host"
            )
        return run(self, fn, *args, **options)

    strategy.__init__ = construct_noted
    default.run = run_checked


def _check_datasets(tensorflow: TensorFlow, findings: Findings, state: SystemState, strategy: Any) -> None:
    """Look at each dataset that `strategy` distributes, or that a function makes for it."""
    distribute, from_function = (
        strategy.experimental_distribute_dataset,
        strategy.distribute_datasets_from_function,
    )
    batches = Batches(tensorflow, findings)

    def check(dataset: Any, options: Any) -> None:
        if options is None or options.experimental_fetch_to_device:
            _refuse_composites(tensorflow, findings, dataset.element_spec)
        if state.remote:
            refuse_local_files(tensorflow, findings, dataset)

    def distribute_checked(self: Any, dataset: Any, options: object = None) -> object:
        if isinstance(dataset, tensorflow.datasets.DatasetV2):
            check(dataset, options)
            batches.check_global(dataset, self.num_replicas_in_sync)
            batches.check_last(dataset)
        return distribute(self, dataset, options)

    def from_function_checked(
        self: object, dataset_fn: Callable[[object], Any], options: object = None
    ) -> object:
        def dataset_of(context: object) -> object:
            dataset = dataset_fn(context)
            if isinstance(dataset, tensorflow.datasets.DatasetV2):
                check(dataset, options)
            return dataset

        return from_function(self, dataset_of, options)

    batches.watch_iteration(strategy)
    strategy.experimental_distribute_dataset = distribute_checked
    strategy.distribute_datasets_from_function = from_function_checked


def _refuse_composites(tensorflow: TensorFlow, findings: Findings, spec: object) -> None:
    """Let TPUStrategy's own check speak."""
    tf = tensorflow.tf
    try:
        tensorflow.tpu_strategy.TPUExtended._check_spec(None, spec)
    except ValueError as error:
        ragged = any(isinstance(leaf, tf.RaggedTensorSpec) for leaf in tf.nest.flatten(spec))
        kind, code = ("ragged", "RAGGED_INPUT") if ragged else ("sparse", "SPARSE_INPUT")
        findings.refuse(code, f"a dataset with {kind} tensors is distributed to the replicas", error)


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


def _check_checkpoints(tensorflow: TensorFlow, findings: Findings, state: SystemState) -> None:
    """Refuse checkpoints on local paths while the TPU's worker is remote."""
    saver = tensorflow.saver.MultiDeviceSaver
    save, restore = saver.save, saver.restore

    def refuse(prefix: object, options: object, words: str) -> None:
        path = _text(tensorflow.tf, prefix)
        if state.remote and path and is_local(path) and not _written_here(options):
            refuse_path(tensorflow, findings, path, words)

    def save_checked(self: object, file_prefix: object, options: object = None) -> object:
        refuse(file_prefix, options, "a checkpoint is written to")
        return save(self, file_prefix, options)

    def restore_checked(self: object, file_prefix: object, options: object = None) -> object:
        refuse(file_prefix, options, "a checkpoint is read from")
        return restore(self, file_prefix, options)

    saver.save, saver.restore = save_checked, restore_checked


def refuse_local_files(tensorflow: TensorFlow, findings: Findings, dataset: Any) -> None:
    """Refuse a dataset for the replicas that is made from the names of files on this machine."""
    for name in _names(tensorflow, dataset, limit=8):
        if is_local(name) and os.path.isfile(name):
            refuse_path(tensorflow, findings, name, "the workers are to read")


def refuse_path(tensorflow: TensorFlow, findings: Findings, path: str, words: str) -> None:
    """Refuse one path as TensorFlow's worker does."""
    error = tensorflow.tf.errors.UnimplementedError(
        None, None, f"File system scheme '[local]' not implemented (file: '{path}')"
    )
    findings.refuse("LOCAL_PATH", f"{words} '{path}' on this machine, which a remote TPU cannot reach", error)


def is_local(path: str) -> bool:
    """Whether a path has no scheme, such as gs://."""
    return "://" not in path or path.startswith("file://")


def _written_here(options: object) -> bool:
    return "localhost" in (getattr(options, "experimental_io_device", None) or "")


def _text(tf: ModuleType, prefix: object) -> str:
    value = tf.get_static_value(prefix) if tf.is_tensor(prefix) else prefix
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _names(tensorflow: TensorFlow, dataset: Any, limit: int) -> Iterator[str]:
    """The first texts that a dataset's sources are made of."""
    waiting = [dataset]
    while waiting:
        source = waiting.pop()
        waiting += source._inputs()
        for tensor in getattr(source, "_tensors", ()):
            if (
                tensor.dtype == tensorflow.tf.string
                and (value := tensorflow.tf.get_static_value(tensor)) is not None
            ):
                yield from (text.decode("utf-8", "replace") for text in value.ravel()[:limit])


class Placement:
    """Checks each device name; a slice that runs with fewer cores counts in full."""

    def __init__(self, findings: Findings, state: SystemState, names: DeviceNames, tpu: Slice) -> None:
        self._findings = findings
        self._state = state
        self._names = names
        self._whole = Slice.named(tpu.accelerator)

    def look(self, name: str) -> None:
        """Check one device name; TensorFlow places what it does not know on the host's CPU."""
        core = self._names.core(name)
        if core is None or self._findings.checks == "off":
            return
        if not self._state.initialized:
            text = f"'{name}' is used before the TPU is initialized: its operations run on the host"
            self._findings.slow("NOT_INITIALIZED", text, subject=name)
        elif core >= self._whole.cores:
            text = (
                f"'{name}': {self._whole.accelerator} has {self._whole.cores} cores, counted from 0; "
                "its operations run on the host"
            )
            self._findings.slow("NO_SUCH_CORE", text, subject=name)
