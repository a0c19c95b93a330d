"""What training code uses of Keras 3 and Keras 2 works on a simulated TPU; one program makes many checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forks.tensorflow_python import report_of
from tpuctl.sim.guest import environment

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "keras_features.py"
LEGACY = {"keras": "0", "tf_keras": "1"}
"""What TF_USE_LEGACY_KERAS says for each."""


@pytest.fixture(scope="module", params=["keras", pytest.param("tf_keras", marks=pytest.mark.slow)])
def report(request: pytest.FixtureRequest) -> Any:
    """What the program saw with each Keras."""
    chosen = {"TF_USE_LEGACY_KERAS": LEGACY[request.param]}
    report = report_of(PROGRAM, variables=chosen | environment("v3-8", cores=2))
    assert report["module"] == request.param
    return report


def test_arrays_whose_last_batch_does_not_divide_by_the_replicas_train(report: Any) -> None:
    assert report["arrays"]
    assert report["accuracies"] == [pytest.approx(report["accuracies"][-1], abs=1e-6)] * 3
    assert report["predicted"] == [101, 3]


def test_a_first_batch_that_does_not_divide_is_refused_by_keras_3_as_on_a_tpu(report: Any) -> None:
    """Keras 3 averages the replicas' first batch to see its shape; TPUStrategy adds its parts just so."""
    refused = report["one batch that does not divide"].startswith("InvalidArgumentError: ")
    assert refused == (report["keras"] == "keras")
    if refused:
        assert "Inputs to operation AddN of type AddN must have the same size and shape" in str(report)


def test_a_model_compiled_by_xla_trains(report: Any) -> None:
    assert report["jit_compile"]


def test_mixed_precision_computes_in_bfloat16_and_keeps_float32(report: Any) -> None:
    assert report["mixed"]
    compute, stored = report["mixed types"]
    assert compute == "bfloat16"
    assert "float32" in stored


def test_weights_models_and_checkpoints_come_back(report: Any) -> None:
    assert report["weights loaded"]
    assert report["model loaded"]
    assert report["served"]
    assert report["restored"]
    assert report["kept"] == ["ckpt-2", "ckpt-3"]


def test_training_goes_on_at_the_epoch_that_was_interrupted(report: Any) -> None:
    assert report["epochs"] == [0, 1, 2, 2, 3]
    assert report["event files"]


def test_an_optimizer_updates_in_branches_and_loops_of_a_replica(report: Any) -> None:
    assert report["branch not taken"] == [1.0, 1.0]
    assert report["branch taken"] == pytest.approx([0.6, 0.6])
    assert report["loop"] == pytest.approx([0.6**4, 0.6**4])
    assert report["updates"] == 4


def test_gradients_are_accumulated(report: Any) -> None:
    assert report.get("accumulated", report["keras"] == "tf_keras"), "only Keras 3 has it"


def test_functions_compiled_by_xla_run_in_and_around_replicas(report: Any) -> None:
    assert (report["jit itself"], report["jit nested"], report["jit around"]) == (
        [6.0] * 2,
        [7.0] * 2,
        [6.0] * 2,
    )


def test_a_strategys_devices_have_tpu_names(report: Any) -> None:
    place = "/job:localhost/replica:0/task:0/device:TPU:"
    assert report["worker devices"] == [f"{place}0", f"{place}1"]
