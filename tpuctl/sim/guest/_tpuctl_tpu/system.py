"""Initializes the TPU system and shuts it down, below TensorFlow's own code for both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .hooks import TensorFlow
from .names import LOCAL_JOB, WORKER_JOB
from .slices import Slice


@dataclass(frozen=True)
class SystemState:
    """What TensorFlow's own record says of the TPU system; nothing is kept beside it."""

    systems: Mapping[str, object]
    local_names: tuple[str, ...]

    @property
    def initialized(self) -> bool:
        """Whether initialize_tpu_system was called, and the system not shut down since."""
        return bool(self.systems)

    @property
    def job(self) -> str:
        """The job of the TPU devices: this process for a local TPU, workers for a node known by name."""
        return LOCAL_JOB if all(name in self.local_names for name in self.systems) else WORKER_JOB

    @property
    def remote(self) -> bool:
        """Whether the TPU's worker is another process than the program, as it is for a node known by name."""
        return self.job == WORKER_JOB


def install(tensorflow: TensorFlow, tpu: Slice) -> SystemState:
    """Replace the two operations that only a TPU has; returns the state that follows from their use."""
    tf = tensorflow.tf

    def initialize_system(
        embedding_config: object = None, job: str | None = None, **options: object
    ) -> object:
        """Stand for ConfigureDistributedTPU, whose result is the slice's topology."""
        del options  # they say what happens when a chip fails
        if embedding_config is not None:
            raise NotImplementedError("The simulated TPU has no embedding hardware (TPUEmbedding).")
        if job is None:  # else the hosts' own servers hold the chips
            import _tpuctl_chips  # type: ignore[import-not-found]  # noqa: PLC0415  only a host has this name

            refusal = _tpuctl_chips.take(os.environ)
            if refusal:
                raise tf.errors.AbortedError(None, None, refusal)
        if job is None and tpu.hosts > 1:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"a host of {tpu.accelerator} cannot start its part of the TPU alone: "
                "give TPUClusterResolver the node's name (TPU_NAME) instead of 'local', on worker 0 only.",
            )
        topology = tensorflow.topology.Topology(mesh_shape=tpu.mesh, device_coordinates=tpu.coordinates)
        return tf.constant(topology.serialized())

    def shutdown_system(job: str | None = None) -> object:
        """Stand for ShutdownDistributedTPU."""
        del job
        return tf.no_op()

    tensorflow.tpu.initialize_system = initialize_system
    tensorflow.tpu.shutdown_system = shutdown_system
    return SystemState(tensorflow.systems._INITIALIZED_TPU_SYSTEMS, tensorflow.systems._LOCAL_MASTERS)
