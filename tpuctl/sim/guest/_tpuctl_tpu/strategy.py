"""Implements TPUStrategy on logical devices: mirrored variables, one replica a core, one reduction."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from .control_flow import Meetings
from .exports import replace_everywhere
from .hooks import TensorFlow
from .names import DeviceNames
from .replica import inlined
from .slices import Slice

Translate = Callable[[property], property]


def install(
    tensorflow: TensorFlow,
    tpu: Slice,
    names: DeviceNames,
    meetings: Meetings,
    translate: Translate,
) -> type:
    """Replace TensorFlow's TPU strategies under all their public names; returns the new class.

    `translate` turns a property of device names into one of the names that users expect.
    """
    strategy = _strategy_class(tensorflow, _extended_class(tensorflow, tpu, meetings, translate), names)
    replace_everywhere(
        {
            tensorflow.tpu_strategy.TPUStrategyV2: strategy,
            tensorflow.tpu_strategy.TPUStrategy: _experimental_class(strategy),
        }
    )
    return strategy


def _extended_class(tensorflow: TensorFlow, tpu: Slice, meetings: Meetings, translate: Translate) -> type:
    mirrored = tensorflow.mirrored.MirroredExtended

    class SimulatedTPUExtended(mirrored):  # type: ignore[misc, valid-type]
        """A mirrored strategy with the numbers of a TPU, and one program for all replicas."""

        steps_per_run = 1
        num_hosts = tpu.hosts
        num_replicas_per_host = tpu.cores_per_host
        tpu_hardware_feature = None
        worker_devices = translate(mirrored.worker_devices)
        parameter_devices = translate(mirrored.parameter_devices)

        def _initialize_single_worker(self, devices: object) -> None:
            with _quiet(tensorflow.tf.get_logger(), "Using MirroredStrategy"):
                super()._initialize_single_worker(devices)
            self._programs: weakref.WeakKeyDictionary[object, Callable[..., object]] = (
                weakref.WeakKeyDictionary()
            )

        def _call_for_each_replica(self, fn: Callable[..., object], args: object, kwargs: object) -> object:
            if isinstance(fn, tensorflow.function.Function):
                if tensorflow.context.executing_eagerly():
                    return self._program(fn)(args, kwargs)
                fn = inlined(tensorflow, fn)
            return super()._call_for_each_replica(meetings.traced(fn), args, kwargs)

        def _program(self, fn: object) -> Callable[..., object]:
            """Return one function of all replicas for a tf.function, made once."""
            if fn not in self._programs:

                def program(args: object, kwargs: object) -> object:
                    traced = meetings.traced(inlined(tensorflow, fn))
                    return mirrored._call_for_each_replica(self, traced, args, kwargs)

                self._programs[fn] = tensorflow.tf.function(program, autograph=False)
            return self._programs[fn]

        def _use_merge_call(self) -> bool:
            """Whether replicas meet while they are traced, which they cannot in a branch or a loop.

            There they meet when they run, by TensorFlow's collective operations.
            """
            return not meetings.apart()

        def _get_cross_device_ops(self, value: object) -> object:
            if not meetings.apart():
                return super()._get_cross_device_ops(value)
            meetings.hold()
            return self._collective_ops

    return SimulatedTPUExtended


@contextmanager
def _quiet(logger: logging.Logger, start: str) -> Iterator[None]:
    """Drop log lines that begin with `start`: they name the emulation's parts."""

    def keep(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(start)

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _strategy_class(tensorflow: TensorFlow, extended: type, names: DeviceNames) -> type:
    real = tensorflow.tpu_strategy.TPUStrategyV2
    base: Any = tensorflow.distribute.Strategy
    # groups of collective operations are known by number to all strategies of the process
    collective_keys = count(step=1000)

    def in_order(values: Any) -> Any:
        """Sum in the order of the replicas: AddN begins with whichever of its inputs it may overwrite.

        tensorflow/core/kernels/aggregate_ops.cc, `reused_input`
        """
        return tensorflow.tf.reduce_sum(tensorflow.tf.stack(values), axis=0)

    # Its name must not start with TPUStrategy: TensorFlow and Keras take that for a sign of real TPU values.
    class SimulatedTPUStrategy(base):  # type: ignore[misc]
        __doc__ = real.__doc__

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
            self._collective_key_base = next(collective_keys)
            super().__init__(
                extended(
                    self,
                    devices=_devices(experimental_device_assignment, names),
                    cross_device_ops=tensorflow.reduction.ReductionToOneDevice(accumulation_fn=in_order),
                )
            )

        @property
        def cluster_resolver(self) -> object:
            """Return the cluster resolver of this strategy."""
            return self._tpu_cluster_resolver

        def run(self, fn: object, args: object = (), kwargs: object = None, options: object = None) -> object:
            """Run `fn` on each replica; as on a TPU, only as a tf.function or inside one."""
            tensorflow.tpu_strategy.validate_run_function(fn)
            return super().run(fn, args, kwargs, options)

    SimulatedTPUStrategy.run.__doc__ = real.run.__doc__
    return SimulatedTPUStrategy


def _experimental_class(strategy: type) -> type:
    class SimulatedExperimentalTPUStrategy(strategy):  # type: ignore[misc]
        """tf.distribute.experimental.TPUStrategy, which names its second argument otherwise."""

        def __init__(self, tpu_cluster_resolver: object = None, device_assignment: object = None) -> None:
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
