"""Replaces the Cloud TPU client below TPUClusterResolver, and the connection to its workers."""

from __future__ import annotations

from typing import Any

from .exports import replace_everywhere
from .hooks import TensorFlow
from .slices import Slice

_PORT = 8470
"""Of the TensorFlow server on a TPU host."""


def install(tensorflow: TensorFlow, tpu: Slice) -> None:
    """Answer for the Cloud TPU API and for the workers; the resolver itself stays TensorFlow's."""
    tensorflow.resolver.client.Client = _client_class(tensorflow, tpu)
    _count_accelerators(tensorflow, tpu)
    _connect_without_network(tensorflow)


def _client_class(tensorflow: TensorFlow, tpu: Slice) -> type:
    real: Any = tensorflow.client.Client

    class SimulatedTPUClient(real):  # type: ignore[misc]
        """Knows one TPU: the one this process runs on."""

        def __init__(self, tpu: object = None, **options: object) -> None:
            """Take the name, or that of the environment (TPU_NAME), as TensorFlow's own client does."""
            # with a project and a zone it does not ask the metadata server for them
            super().__init__(tpu=tpu, **{**options, "project": "simulated", "zone": "simulated"})

        def _fetch_cloud_tpu_metadata(self) -> dict[str, object]:
            if self._tpu != tpu.node:
                raise ValueError(
                    f"Could not lookup TPU metadata from name '{self._tpu}'. Please doublecheck the tpu "
                    "argument in the TPUClusterResolver constructor. Exception: this simulated host belongs "
                    f"to {_the_node(tpu)}."
                )
            return {
                "name": tpu.node,
                "acceleratorType": tpu.accelerator,
                "state": "READY",
                "health": "HEALTHY",
                "networkEndpoints": [
                    {"ipAddress": f"10.0.0.{host + 2}", "port": str(_PORT)} for host in range(tpu.hosts)
                ],
            }

    return SimulatedTPUClient


def _the_node(tpu: Slice) -> str:
    return f"the node '{tpu.node}'" if tpu.node else "a node without a name (TPUCTL_SIM_NODE is not set)"


def _count_accelerators(tensorflow: TensorFlow, tpu: Slice) -> None:
    """A resolver of a named TPU would connect to count its cores."""
    resolver = tensorflow.resolver.TPUClusterResolver
    count = resolver.num_accelerators

    def num_accelerators(self: Any, *args: object, **options: object) -> dict[str, int]:
        if self.master() in tensorflow.systems._LOCAL_MASTERS:
            return dict(count(self, *args, **options))
        return {"TPU": tpu.cores_per_host}

    resolver.num_accelerators = num_accelerators


def _connect_without_network(tensorflow: TensorFlow) -> None:
    """The workers' cores are devices of this process: there is nothing to connect to."""
    remote, resolver = tensorflow.remote, tensorflow.resolver.TPUClusterResolver
    to_cluster, to_host = remote.connect_to_cluster, remote.connect_to_remote_host

    def connect_to_cluster(cluster_spec_or_resolver: object, *args: object, **options: object) -> None:
        if not isinstance(cluster_spec_or_resolver, resolver):
            to_cluster(cluster_spec_or_resolver, *args, **options)
        else:
            cluster_spec_or_resolver.cluster_spec()  # refuses a TPU that is not there

    def connect_to_remote_host(remote_host: object = None, job_name: str = "worker") -> None:
        if not remote_host:
            to_host(remote_host, job_name)

    replace_everywhere({to_cluster: connect_to_cluster, to_host: connect_to_remote_host})
