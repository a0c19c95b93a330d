"""Device names are translated both ways."""

from __future__ import annotations

import pytest

from tpuctl.sim.guest._tpuctl_tpu.names import DeviceNames

NAMES = DeviceNames(cores=8, cores_per_host=4)
HOST = "/job:localhost/replica:0/task:0/device:CPU:"


@pytest.mark.parametrize(
    ("written", "runs_on"),
    [
        ("/TPU:0", HOST + "1"),
        ("TPU:3", HOST + "4"),
        ("/device:tpu:7", HOST + "8"),
        ("/job:localhost/replica:0/task:0/device:TPU:2", HOST + "3"),
        ("/job:worker/replica:0/task:1/device:TPU:2", HOST + "7"),
        ("/device:TPU_SYSTEM:0", HOST + "0"),
        ("/job:worker/replica:0/task:1/device:TPU_SYSTEM:0", HOST + "0"),
        ("/job:worker/replica:0/task:1/device:CPU:0", HOST + "0"),
        ("/job:worker", ""),
        ("/CPU:0", "/CPU:0"),
        ("/job:ps/task:0", "/job:ps/task:0"),
        ("/TPU:8", "/TPU:8"),
    ],
)
def test_a_core_runs_on_its_logical_cpu(written: str, runs_on: str) -> None:
    assert NAMES.to_host(written) == runs_on


@pytest.mark.parametrize(
    ("real", "job", "shown"),
    [
        (HOST + "0", "localhost", HOST + "0"),
        (HOST + "6", "localhost", "/job:localhost/replica:0/task:0/device:TPU:5"),
        (HOST + "6", "worker", "/job:worker/replica:0/task:1/device:TPU:1"),
        (HOST + "9", "worker", HOST + "9"),
    ],
)
def test_a_logical_cpu_is_shown_as_its_core(real: str, job: str, shown: str) -> None:
    assert NAMES.to_tpu(real, job) == shown


@pytest.mark.parametrize("job", ["localhost", "worker"])
def test_every_name_that_is_shown_can_be_written(job: str) -> None:
    for core in range(NAMES.cores):
        assert NAMES.to_host(NAMES.full(core, job)) == NAMES.host_device(core)
        if job == "worker":
            assert NAMES.listed(core, job) == NAMES.full(core, job)
