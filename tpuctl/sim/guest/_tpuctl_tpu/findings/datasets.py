"""Checks datasets that are distributed: refuses those that a TPU refuses, before they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..hooks import TensorFlow
from ..system import SystemState
from .batches import Batches
from .files import refuse_local_files
from .recorder import Findings


def install(tensorflow: TensorFlow, findings: Findings, state: SystemState, strategy: Any) -> None:
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
