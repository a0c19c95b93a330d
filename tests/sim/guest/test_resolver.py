"""A program finds its TPU by every form in which TPUClusterResolver takes it; one program tries them all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.event_loops.thread import LoopThread
from tests.forks.tensorflow_python import report_of
from tests.sim.guards import guard_of
from tpuctl.sim.guest import environment
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.hosts.metadata.server import MetadataServer

PROGRAM = Path(__file__).parent / "programs" / "resolve.py"
MACHINE = {"instance": {"hostname": "mine-w-0.sim", "maintenance-event": "NONE", "preempted": "FALSE"}}
LOCAL = {
    "master": "",
    "device": "/device:TPU:1",
    "placed": "/job:localhost/replica:0/task:0/device:TPU:1",
    "left": [2, 0],
}
REMOTE = {
    "master": "grpc://10.0.0.2:8470",
    "device": "/job:worker/replica:0/task:0/device:TPU:1",
    "placed": "/job:worker/replica:0/task:0/device:TPU:1",
    "left": [2, 0],
}


@contextmanager
def metadata_server(folder: Path) -> Iterator[str]:
    """Serve what the metadata server of a simulated host serves, and yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = MetadataServer(
        MACHINE, Identity(folder / "token", Signer(folder / "key")), None, guard_of(folder)
    )
    thread = LoopThread()
    thread.start(server.open(listener))
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.finish(server.close())


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the program found in each way, on a host of the node `mine`."""
    with metadata_server(tmp_path_factory.mktemp("metadata")) as address:
        found_there = {
            "GCE_METADATA_IP": address,
            "GCE_METADATA_HOST": address,
            "COLAB_TPU_ADDR": "10.0.0.2:8470",
        }
        return report_of(PROGRAM, variables=found_there | environment("v3-8", node="mine", cores=2))


@pytest.mark.parametrize("way", ["local", "empty, TPU_NAME=local"])
def test_a_tpu_of_this_machine_is_found(resolved: Any, way: str) -> None:
    assert resolved[way] == LOCAL


@pytest.mark.parametrize(
    "way",
    [
        "name",
        "address",
        "nothing, TPU_NAME=name",
        "nothing, TPU_NAME=address",
        "nothing, TPU_CONFIG",
        "nothing, GKE",
    ],
)
def test_a_tpu_known_by_name_or_address_is_found(resolved: Any, way: str) -> None:
    assert resolved[way] == REMOTE


def test_without_any_name_it_is_refused_in_tensorflows_words(resolved: Any) -> None:
    assert resolved["empty"] == "ValueError: Please provide a TPU Name to connect to."


def test_the_name_of_another_node_is_refused(resolved: Any) -> None:
    assert resolved["another name"].startswith("ValueError: Could not lookup TPU metadata from name 'other'.")
    assert "belongs to the node 'mine'" in resolved["another name"]


def test_the_log_tells_of_a_tpu_as_tensorflow_does(resolved: Any) -> None:
    assert {
        "Initializing the TPU system: grpc://10.0.0.2:8470",
        "Finished initializing TPU system.",
        "Found TPU system:",
        "*** Num TPU Cores: 2",
        "*** Available Device: _DeviceAttributes(/job:worker/replica:0/task:0/device:TPU:1, TPU, 0, 0)",
    } <= set(resolved["logged"])
    assert not [line for line in resolved["logged"] if "Mirrored" in line or "CPU:1" in line]


def test_tensorflows_preemption_watchers_see_a_machine_of_google_cloud_with_a_tpu(resolved: Any) -> None:
    """There they have no support for TPUs, and say so; what they wrap runs."""
    assert resolved["preemption"] == {"message": None, "ran": 2.0}
    message = " ".join(resolved["logged"])
    assert "Preemption watcher does not support environment: PlatformDevice.GCE_TPU" in message
    assert "PreemptionCheckpointHandler does not support usage with TPU or CPU device on GCP." in message
