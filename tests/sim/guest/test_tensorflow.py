"""Unmodified TPU code of TensorFlow runs on a simulated host; two programs make many checks each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forks.tensorflow_python import report_of
from tpuctl.sim.guest import environment

PROGRAMS = Path(__file__).parent / "programs"
LOCAL = "/job:localhost/replica:0/task:0/device:"


def run(program: str, **variables: str) -> Any:
    return report_of(PROGRAMS / program, variables=variables)


@pytest.fixture(scope="module")
def report() -> Any:
    """What the program for a local TPU saw."""
    return run("local_tpu.py", TPU_NAME="local", **environment("v3-8", cores=2))


@pytest.fixture(scope="module")
def named() -> Any:
    """What the program for a node of several hosts saw."""
    return run("named_tpu.py", TPU_NAME="big", **environment("v3-32", node="big", cores=4))


def test_before_it_is_initialized_there_is_only_the_host(report: Any) -> None:
    assert report["devices before"] == ["/device:CPU:0"]
    assert report["mirrored replicas"] == 1
    assert report["tensor before"] == LOCAL + "CPU:0"


def test_a_strategy_needs_an_initialized_system(report: Any) -> None:
    assert report["strategy before"].startswith("RuntimeError: The TPU system is not initialized")


def test_the_resolver_finds_the_local_tpu_and_no_other(report: Any) -> None:
    assert report["masters"] == ["", "", ""]
    assert report["unknown name"].startswith(
        "ValueError: Could not lookup TPU metadata from name 'elsewhere'"
    )


def test_what_the_emulated_tpu_does_not_have_is_refused_in_a_sentence(report: Any) -> None:
    assert report["embedding"].startswith("NotImplementedError: The simulated TPU has no embedding hardware")
    assert report["dtensor"].startswith("NotImplementedError: The simulated TPU has no devices for DTensor")


def test_the_cores_are_listed_under_tpu_names(report: Any) -> None:
    assert report["devices"] == ["/device:TPU:0", "/device:TPU:1"]
    assert report["all devices"] == ["/device:CPU:0", *report["devices"]]
    assert report["physical devices"] == ["/physical_device:TPU:0", "/physical_device:TPU:1"]
    assert (report["mesh"], report["accelerators"], report["metadata cores"]) == ([1, 1, 1, 2], {"TPU": 2}, 2)


def test_operations_are_placed_and_shown_by_tpu_name(report: Any) -> None:
    assert report["placed"] == [
        LOCAL + name for name in ("CPU:0", "TPU:1", "TPU:1", "CPU:0", "TPU:0", "CPU:0")
    ]
    assert report["placed in graph"] == [LOCAL + "TPU:1"] * 2
    assert report["product"] == [[7.0, 10.0], [15.0, 22.0]]


def test_the_strategy_has_a_replica_for_each_core(report: Any) -> None:
    assert report["is a TPUStrategy"]
    assert report["cluster resolver kept"]
    assert (report["replicas"], report["experimental replicas"], report["assigned replicas"]) == (2, 2, 1)
    assert report["variable device"] == LOCAL + "TPU:0"


def test_a_function_runs_on_every_replica_and_is_reduced(report: Any) -> None:
    assert report["replica numbers"] == [0.0, 1.0]
    assert report["sum and mean"] == [1.0, 0.5]


def test_running_a_plain_function_eagerly_is_refused_as_a_tpu_does(report: Any) -> None:
    assert report["eager run"].startswith("NotImplementedError: TPUStrategy.run(fn, ...) does not support")


def test_a_custom_loop_computes_what_arithmetic_says(report: Any) -> None:
    assert report["weight"] == pytest.approx(report["expected weight"], rel=1e-5)
    assert report["loss"] == pytest.approx(report["expected loss"], rel=1e-5)
    assert report["copies"] == [report["weight"]] * 2


def test_input_is_split_over_the_replicas_and_ragged_input_refused(report: Any) -> None:
    assert report["from function"] == [[0, 1], [2, 3]]
    assert report["ragged"].startswith("ValueError: Found tensor")


def test_autotuning_is_off_unless_the_program_asks_for_it(report: Any) -> None:
    assert (report["default autotune"], report["chosen autotune"]) == (False, True)


def test_keras_trains_evaluates_and_predicts(report: Any) -> None:
    first, last = report["keras losses"]
    assert last < first / 2
    assert report["keras partial batch"] == [37, 3]
    assert report["keras accuracy"] == pytest.approx(report["accuracy by hand"], abs=1e-6)


def test_checkpoints_bring_the_variables_back(report: Any) -> None:
    assert report["restored"] is True


def test_after_shutdown_there_is_no_tpu(report: Any) -> None:
    assert report["devices after shutdown"] == []


def test_a_node_of_several_hosts_is_found_by_name_with_all_its_cores(named: Any) -> None:
    assert (named["workers"], named["tasks"], named["hosts"], named["replicas"]) == (4, 4, 4, 4)
    assert named["devices"] == [f"/job:worker/replica:0/task:{host}/device:TPU:0" for host in range(4)]
    assert named["placed"] == "/job:worker/replica:0/task:2/device:TPU:0"
    assert named["accelerators"] == {"TPU": 1}
    assert named["master"] == "grpc://10.0.0.2:8470"


def test_local_is_refused_on_a_host_of_several(named: Any) -> None:
    assert named["local"].startswith("TPUs not found in the cluster.")
    assert "TPU_NAME" in named["local"]
