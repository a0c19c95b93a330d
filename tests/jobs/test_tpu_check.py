"""The TPU check reports problems in sentences and by its exit code."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.jobs.reports import report_of
from tpuctl.sim.guest import environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def on_tpu(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two cores of an emulated v3-8; TPU-incompatible code is an error."""
    folder = tmp_path_factory.mktemp("tpu")
    emulated = environment("v3-8", cores=2, checks="error")
    return report_of("tpu_check", folder, TPU_NAME="local", **emulated)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return report_of("tpu_check", tmp_path_factory.mktemp("cpu"))


def test_a_good_tpu_exits_with_0(on_tpu: Any) -> None:
    good = on_tpu["good"]
    assert good["code"] == 0, good["printed"]
    for line in (
        "The TPU is emulated by tpuctl's simulator: THE FIGURES ARE THE CPU'S.",
        "accelerator  v3-8",
        "replicas     2",
        "device       /device:TPU:0",
        "device       /device:TPU:1",
        "No problems found. The figures are the CPU's.",
    ):
        assert line in good["printed"].splitlines()
    assert "computed on /job:localhost/replica:0/task:0/device:TPU:0" in good["printed"]
    assert "PerReplica:{\n  0: tf.Tensor(\n[[22. 28.]" in good["printed"]


def test_the_type_comes_from_the_metadata_server(on_tpu: Any) -> None:
    assert on_tpu["metadata_requests"] == ["Google /computeMetadata/v1/instance/attributes/accelerator-type"]


def test_the_figures_are_in_the_result(on_tpu: Any) -> None:
    result = on_tpu["good"]["result"]
    assert (result["tpu"], result["emulated"], result["accelerator"]) == (True, True, "v3-8")
    assert (result["replicas"], result["problems"]) == (2, [])
    matmul = result["matmul"]
    assert matmul["tflops_per_chip"] == pytest.approx(2 * matmul["tflops_per_replica"])
    assert matmul["share_of_peak"] == pytest.approx(matmul["tflops_per_chip"] / 123)
    assert 0 < matmul["share_of_peak"] < 1
    assert min(result["host_to_device_gb_per_second"].values()) > 0


def test_wrong_products_are_named_with_their_replica(on_tpu: Any) -> None:
    wrong = on_tpu["wrong"]
    assert wrong["code"] == 1
    assert wrong["result"]["problems"] == [
        "Wrong value on replica 1: [[46.0, 58.0], [100.0, 130.0]] instead of [[44.0, 56.0], [98.0, 128.0]].",
        "Wrong products of 512 x 512 on replica 1: 262144 elements.",
    ]
    assert "Problems found: 2. The figures are the CPU's." in wrong["printed"]


def test_missing_chips_and_a_speed_far_below_peak_are_problems(on_tpu: Any) -> None:
    slow = on_tpu["slow"]
    assert slow["code"] == 1
    chips, speed = slow["result"]["problems"]
    assert chips == "v3-8 has 4 chips; found 1."
    assert re.match(r"The speed is \d+\.\d% of the chip's peak; 50% is the least\.", speed)


def test_without_a_tpu_it_says_so_measures_the_cpu_and_exits_with_1(on_cpu: Any) -> None:
    none = on_cpu["none"]
    assert none["code"] == 1
    assert "No TPU was found: TPU_NAME is not set" in none["printed"]
    assert "The checks run on the CPU: THE FIGURES ARE THE CPU'S." in none["printed"]
    assert none["result"]["tpu"] is False
    assert none["result"]["matmul"]["tflops_per_replica"] > 0
    assert "share_of_peak" not in none["result"]["matmul"]


def test_with_cpu_a_missing_tpu_is_no_problem(on_cpu: Any) -> None:
    assert on_cpu["cpu"]["code"] == 0
    assert on_cpu["cpu"]["result"]["problems"] == []


def test_it_says_what_to_do_if_there_are_chips_but_no_tpu(on_cpu: Any) -> None:
    assert "set TPU_NAME=local" in on_cpu["chips"]
    assert "already in use by process with pid 7. Another program may hold the chips" in on_cpu["held"]


def test_a_missing_replica_and_an_impossible_speed_are_problems(on_tpu: Any) -> None:
    assert on_tpu["one_replica"] == ["Expected the results of 2 replicas, got 1."]
    assert on_tpu["too_fast"] == ["The speed is 150% of the chip's peak: is the accelerator type right?"]
