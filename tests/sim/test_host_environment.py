"""The variables of programs on a host, whole: what unmodified clients there read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.sim import guest
from tpuctl.sim.client_environment import HostEnvironment
from tpuctl.sim.records import Host

PROXY, STORAGE = "http://127.0.0.1:1234", "http://127.0.0.1:5678"
INSIDE = "127.0.0.0/8,127.0.0.1,localhost,metadata.google.internal,169.254.169.254"
HOST = Host(
    node="projects/p/locations/europe-west4-a/nodes/n1",
    node_uid="77",
    worker=0,
    address="127.77.0.1",
    hostname="t1v-n-0000004d-w-0",
    accelerator_type="v3-8",
    runtime_version="tpu-ubuntu2204-base",
    peers=("127.77.0.1",),
    preemptible=False,
)
EXPECTED = {
    "https_proxy": PROXY,
    "HTTPS_PROXY": PROXY,
    "no_proxy": INSIDE,
    "NO_PROXY": INSIDE,
    "SSL_CERT_FILE": "/ca/all.pem",
    "REQUESTS_CA_BUNDLE": "/ca/all.pem",
    "CURL_CA_BUNDLE": "/ca/all.pem",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "/ca/all.pem",
    "TENSORSTORE_CA_BUNDLE": "/ca/all.pem",
    "HTTPLIB2_CA_CERTS": "/ca/own.pem",
    "STORAGE_EMULATOR_HOST": STORAGE,
    "CLOUD_STORAGE_EMULATOR_ENDPOINT": STORAGE,
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    "TPUCTL_SIM_ADDRESS": "127.77.0.1",
    "TPUCTL_SIM_CHIP_LOOK": "120.0",
    "GOOGLE_CLOUD_PROJECT": "p",
    "PJRT_DEVICE": "CPU",
}
PIP = ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's own process has none of the variables that change those of a host."""
    for name in (*PIP, "TPUCTL_SIM_CORES", "TPUCTL_SIM_CHECKS", "TPUCTL_SIM_CHIP_LOOK"):
        monkeypatch.delenv(name, raising=False)


def environment(egress: str = "pass") -> dict[str, str]:
    """Return a host's variables, but for those of the emulated TPU."""
    built = HostEnvironment(PROXY, STORAGE, Path("/ca/all.pem"), Path("/ca/own.pem"), egress=egress)
    variables = built.of(HOST)
    tpu = guest.environment("v3-8", node="n1", cores=None, checks="")
    assert {name: variables.pop(name) for name in tpu} == tpu
    return variables


def test_a_host_reaches_everything_through_the_simulator() -> None:
    assert environment() == EXPECTED


def test_a_host_behind_a_firewall_sends_all_its_traffic_there() -> None:
    outside = f"{INSIDE},127.77.0.1"
    assert environment("refuse") == EXPECTED | {
        "http_proxy": PROXY,
        "HTTP_PROXY": PROXY,
        "no_proxy": outside,
        "NO_PROXY": outside,
    }


def test_a_host_finds_packages_where_this_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PIP:
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert environment() == EXPECTED | {name: f"value of {name}" for name in PIP}


def test_cores_checks_and_times_are_those_of_the_simulators_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUCTL_SIM_CORES", "2")
    monkeypatch.setenv("TPUCTL_SIM_CHECKS", "off")
    monkeypatch.setenv("TPUCTL_SIM_CHIP_LOOK", "0.5")
    variables = HostEnvironment(PROXY, STORAGE, Path("/a"), Path("/o")).of(HOST)
    tpu = guest.environment("v3-8", node="n1", cores=2, checks="off")
    assert tpu.items() <= variables.items()
    assert variables["TPUCTL_SIM_CHIP_LOOK"] == "0.5"
