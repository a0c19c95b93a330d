"""JAX on a simulated host shows the host's chips; its coordinator is the host's own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.isolation.ports import free_port
from tpuctl.sim.guest import FOLDER, environment

OWN = "127.78.200.1"
NOWHERE = "192.0.2.1"
"""An address that no machine has (RFC 5737), as a host's is where the system has 127.0.0.1 alone."""
ONE_HOST = Path(__file__).parent / "programs" / "one_host_jax.py"
JOIN = """
import sys, jax
from jax.experimental import multihost_utils
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]),
                           cluster_detection_method="deactivate")
print(*multihost_utils.process_allgather(jax.numpy.array(int(sys.argv[2]) + 5)))
"""
COUNT = "import jax; print(jax.device_count())"
PROXY = {"https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.0/8"}
FOREIGN = ("JAX_", "XLA_", "TPU", "PYTHON", "PJRT_")
"""Variables of the developer's own that would change what JAX does."""


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return subprocess.run(
        [os.environ.get("TPUCTL_TEST_JAX") or sys.executable, *map(str, arguments)],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def output(completed: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a program that has to succeed.

    JAX's transport prints before it, from a thread of each device: its lines may be in pieces.
    """
    assert completed.returncode == 0, completed.stderr
    *_, last = completed.stdout.splitlines(keepends=True)
    return last


def sentence(completed: subprocess.CompletedProcess[str]) -> str:
    """Return the one line with which a program ended."""
    assert completed.returncode == 1, completed.stdout
    (line,) = completed.stderr.splitlines()
    return line


def is_free(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_server((host, int(port))).close()
    except OSError:
        return False
    return True


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as a program on a host imports it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("_tpuctl_jax")
    for name in [name for name in sys.modules if name.startswith("_tpuctl")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    ("accelerator", "devices"),
    [
        ("v2-8", 8),
        ("v3-8", 8),
        ("v3-32", 8),
        ("v4-8", 4),
        ("v4-16", 4),
        ("v5p-8", 4),
        ("v5litepod-1", 1),
        ("v5litepod-8", 8),
        ("v5litepod-16", 4),
        ("v6e-8", 8),
    ],
)
def test_a_host_shows_cores_of_v2_and_v3_and_chips_of_later_versions(
    guest: ModuleType, accelerator: str, devices: int
) -> None:
    assert guest.devices_of_host(environment(accelerator)) == devices


@pytest.mark.parametrize(
    ("accelerator", "cores", "devices"), [("v3-8", 2, 2), ("v3-32", 8, 2), ("v3-32", 4, 1), ("v3-32", 1, 1)]
)
def test_fewer_cores_are_shared_out_over_the_hosts(
    guest: ModuleType, accelerator: str, cores: int, devices: int
) -> None:
    assert guest.devices_of_host(environment(accelerator, cores=cores)) == devices


def test_the_coordinator_is_the_hosts_own_and_one_at_a_time() -> None:
    with closing(socket.create_server((OWN, 0))) as other:
        used_port = other.getsockname()[1]
        variables = environment("v3-8") | {"TPUCTL_SIM_ADDRESS": OWN, "JAX_PLATFORMS": "tpu,cpu"}
        completed = run(ONE_HOST, used_port, free_port(OWN), **variables, **PROXY)
    assert "proxy" not in completed.stderr, "JAX warns of a hang that no_proxy prevents"
    report = json.loads(output(completed))
    assert report["refused"].startswith(f"{OWN}:{used_port} is in use: another JAX program on this host")
    assert (report["devices"], report["platforms"], report["sum"]) == (8, ["cpu"], 28.0)
    assert report["left"] == [], "JAX took this for a machine without a metadata server"


def test_hosts_without_an_address_of_their_own_still_join(guest: ModuleType) -> None:
    variables = environment("v4-16", cores=2) | {"TPUCTL_SIM_ADDRESS": NOWHERE}
    address = f"{NOWHERE}:{free_port()}"
    while not is_free(guest._reachable(address, NOWHERE)):  # it stands for a port of this machine
        address = f"{NOWHERE}:{free_port()}"
    with ThreadPoolExecutor() as pool:
        workers = pool.map(lambda worker: run("-c", JOIN, address, worker, **variables), range(2))
        assert [output(worker) for worker in workers] == ["5 6\n"] * 2


def test_a_program_that_asks_for_the_cpu_gets_one_device_as_on_a_tpu_host() -> None:
    assert output(run("-c", COUNT, **environment("v3-8"), JAX_PLATFORMS="cpu")) == "1\n"


def test_without_libtpu_it_is_the_hosts_cpu_with_jaxs_own_warning() -> None:
    alone = run("-c", COUNT, **environment("v3-8"), TPUCTL_SIM_RUNTIME="tpu-ubuntu2204-base")
    assert output(alone) == "1\n"
    assert "Falling back to cpu." in alone.stderr


def test_children_of_a_program_see_the_same_devices() -> None:
    program = (
        f"import jax, os, subprocess, sys; subprocess.run([sys.executable, '-c', {COUNT!r}], check=True)"
    )
    assert output(run("-c", program, **environment("v3-8", cores=2))) == "2\n"


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("class config: pass", "jax_num_cpu_devices"),
        ("class config: jax_num_cpu_devices = -1", "get_distributed_runtime_service"),
    ],
)
def test_a_jax_without_what_is_needed_ends_the_program_with_one_sentence(
    tmp_path: Path, source: str, missing: str
) -> None:
    (tmp_path / "jax" / "_src").mkdir(parents=True)
    (tmp_path / "jax" / "__init__.py").write_text(f"__version__ = '9.9'\n{source}\n")
    (tmp_path / "jax" / "_src" / "__init__.py").touch()
    (tmp_path / "jax" / "_src" / "lib.py").touch()
    variables = {"PYTHONPATH": f"{FOLDER}{os.pathsep}{tmp_path}", "TPUCTL_SIM_TPU": "v3-8"}
    message = sentence(run("-c", "import jax", **variables, TPUCTL_SIM_ADDRESS=OWN))
    assert message.startswith(f"tpuctl simulator: JAX 9.9 has no {missing}, ")


def test_an_unknown_accelerator_ends_the_program_with_one_sentence() -> None:
    message = sentence(run("-c", "import jax", **environment("v9-8")))
    assert message.startswith("tpuctl simulator: TPUCTL_SIM_TPU=v9-8 is not an accelerator type")


def test_without_the_variable_jax_is_left_alone() -> None:
    program = "import jax, os; print(jax.device_count(), os.environ['TPU_SKIP_MDS_QUERY'])"
    assert output(run("-c", program, PYTHONPATH=str(FOLDER))) == "1 1\n"
