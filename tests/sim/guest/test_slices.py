"""The slice that a process sees agrees with the catalogue of accelerator types.

Device names are translated both ways.
"""

from __future__ import annotations

import pytest

from tpuctl.accelerators import catalogue
from tpuctl.sim.guest._tpuctl_tpu.names import DeviceNames
from tpuctl.sim.guest._tpuctl_tpu.slices import Slice


def test_hosts_and_chips_of_every_type_are_those_of_the_catalogue() -> None:
    slices = {name: Slice.named(name) for name in catalogue()}
    sizes = {name: (tpu.hosts, tpu.chips) for name, tpu in slices.items()}
    assert sizes == {name: (each.hosts, each.chips) for name, each in catalogue().items()}


@pytest.mark.parametrize(
    ("name", "devices"),
    [("v2-8", 8), ("v3-8", 8), ("v3-32", 32), ("v4-8", 4), ("v5p-8", 4), ("v5litepod-8", 8), ("v6e-16", 16)],
)
def test_a_core_of_v2_and_v3_and_a_chip_of_later_versions_is_a_device(name: str, devices: int) -> None:
    assert Slice.named(name).cores == devices


@pytest.mark.parametrize(
    ("name", "mesh"),
    [("v3-8", (2, 2, 1, 2)), ("v3-32", (4, 4, 1, 2)), ("v4-16", (2, 2, 2, 1)), ("v5litepod-8", (2, 4, 1, 1))],
)
def test_the_mesh_is_nearly_square_or_cubic(name: str, mesh: tuple[int, ...]) -> None:
    assert Slice.named(name).mesh == mesh


def test_every_core_has_its_own_place_in_the_mesh() -> None:
    for name in catalogue():
        tpu = Slice.named(name)
        places = {tuple(place) for host in tpu.coordinates for place in host}
        assert len(places) == tpu.cores, name
        outside = [
            place for place in places for axis, size in zip(place, tpu.mesh, strict=True) if axis >= size
        ]
        assert (outside, min(map(min, places))) == ([], 0), name


def test_fewer_cores_keep_the_hosts_where_they_divide_evenly() -> None:
    several = Slice.from_environment({"TPUCTL_SIM_TPU": "v3-32", "TPUCTL_SIM_CORES": "8"})
    assert (several.cores, several.hosts, several.cores_per_host, several.chips) == (8, 4, 2, 4)
    odd = Slice.from_environment({"TPUCTL_SIM_TPU": "v3-8", "TPUCTL_SIM_CORES": "3"})
    assert (odd.cores, odd.hosts, len(odd.coordinates[0])) == (3, 1, 3)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TPUCTL_SIM_TPU": "v9-8"}, "v9-8 is not an accelerator type"),
        ({"TPUCTL_SIM_TPU": "v3-0"}, "v3-0 is not an accelerator type"),
        ({"TPUCTL_SIM_TPU": "fast"}, "fast is not an accelerator type"),
        ({"TPUCTL_SIM_TPU": "v3-8", "TPUCTL_SIM_CORES": "9"}, "from 1 to 8"),
        ({"TPUCTL_SIM_TPU": "v3-8", "TPUCTL_SIM_CORES": "some"}, "from 1 to 8"),
    ],
)
def test_what_is_not_a_slice_is_refused(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Slice.from_environment(variables)


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
