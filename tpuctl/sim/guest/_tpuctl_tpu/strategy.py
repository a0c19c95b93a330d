"""TPUStrategy over the logical devices: mirrored variables, one replica a core, one reduction."""

from __future__ import annotations

from typing import Any

from .exports import replace_everywhere
from .names import DeviceNames
from .slices import Slice


def install(tensorflow: Any, tpu: Slice, names: DeviceNames) -> type:
    """Replace TensorFlow's TPU strategies under all their public names; returns the new class."""
    strategy = _strategy_class(tensorflow, _extended_class(tensorflow, tpu), names)
    replace_everywhere(
        {
            tensorflow.tpu_strategy.TPUStrategyV2: strategy,
            tensorflow.tpu_strategy.TPUStrategy: _experimental_class(strategy),
        }
    )
    return strategy


def _extended_class(tensorflow: Any, tpu: Slice) -> type:
    check_spec = tensorflow.tpu_strategy.TPUExtended._check_spec

    class SimulatedTPUExtended(tensorflow.mirrored.MirroredExtended):  # type: ignore[misc]
        """What a TPU adds to a mirrored strategy: its numbers, and the inputs it refuses."""

        steps_per_run = 1
        num_hosts = tpu.hosts
        num_replicas_per_host = tpu.cores_per_host
        tpu_hardware_feature = None

        def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
            if options is None or options.experimental_fetch_to_device:
                check_spec(self, dataset.element_spec)
            return super()._experimental_distribute_dataset(dataset, options)

        def _distribute_datasets_from_function(self, dataset_fn: Any, options: Any) -> Any:
            distributed = super()._distribute_datasets_from_function(dataset_fn, options)
            if options is None or options.experimental_fetch_to_device:
                check_spec(self, distributed.element_spec)
            return distributed

    return SimulatedTPUExtended


def _strategy_class(tensorflow: Any, extended: type, names: DeviceNames) -> type:
    real = tensorflow.tpu_strategy.TPUStrategyV2

    # Its name must not start with TPUStrategy: TensorFlow and Keras take that for a sign of real TPU values.
    class SimulatedTPUStrategy(tensorflow.distribute.Strategy):  # type: ignore[misc]
        __doc__ = real.__doc__
        _collective_key_base = 0

        def __init__(
            self,
            tpu_cluster_resolver: Any = None,
            experimental_device_assignment: Any = None,
            experimental_spmd_xla_partitioning: bool = False,
        ) -> None:
            if experimental_spmd_xla_partitioning:
                raise NotImplementedError("The simulated TPU does not partition a replica over cores (SPMD).")
            resolver = tpu_cluster_resolver or tensorflow.resolver.TPUClusterResolver("")
            if not resolver.get_tpu_system_metadata().num_cores:
                raise RuntimeError(
                    "The TPU system is not initialized: call "
                    "tf.tpu.experimental.initialize_tpu_system(resolver) before tf.distribute.TPUStrategy."
                )
            self._tpu_cluster_resolver = resolver
            super().__init__(
                extended(
                    self,
                    devices=_devices(experimental_device_assignment, names),
                    cross_device_ops=tensorflow.reduction.ReductionToOneDevice(),
                )
            )

        @property
        def cluster_resolver(self) -> Any:
            """Return the cluster resolver of this strategy."""
            return self._tpu_cluster_resolver

        def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
            """Run `fn` on each replica; as on a TPU, only as a tf.function or inside one."""
            tensorflow.tpu_strategy.validate_run_function(fn)
            return super().run(fn, args, kwargs, options)

    SimulatedTPUStrategy.run.__doc__ = real.run.__doc__
    return SimulatedTPUStrategy


def _experimental_class(strategy: type) -> type:
    class SimulatedExperimentalTPUStrategy(strategy):  # type: ignore[misc]
        """tf.distribute.experimental.TPUStrategy, which names its second argument otherwise."""

        def __init__(self, tpu_cluster_resolver: Any = None, device_assignment: Any = None) -> None:
            super().__init__(tpu_cluster_resolver, device_assignment)

    return SimulatedExperimentalTPUStrategy


def _devices(assignment: Any, names: DeviceNames) -> list[str]:
    """The devices that run a replica, in the order of the replicas."""
    if assignment is None:
        return [names.host_device(core) for core in range(names.cores)]
    if assignment.num_cores_per_replica != 1:
        raise NotImplementedError("The simulated TPU runs a replica on one core (num_cores_per_replica=1).")
    return [
        names.to_host(assignment.tpu_device(replica=replica)) for replica in range(assignment.num_replicas)
    ]
