"""What training code uses of Keras 3 and Keras 2 works on a simulated TPU; one program makes many checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forks.tensorflow_python import report_of
from tpuctl.sim.guest import environment

PROGRAM = Path(__file__).parent / "programs" / "keras_features.py"
LEGACY = {"keras": "0", "tf_keras": "1"}
"""What TF_USE_LEGACY_KERAS says for each."""


@pytest.fixture(scope="module", params=["keras", pytest.param("tf_keras", marks=pytest.mark.slow)])
def seen(request: pytest.FixtureRequest) -> Any:
    """What the program saw with each Keras."""
    chosen = {"TF_USE_LEGACY_KERAS": LEGACY[request.param]}
    found = report_of(PROGRAM, variables=chosen | environment("v3-8", cores=2))
    assert found["module"] == request.param
    return found


def test_arrays_whose_last_batch_does_not_divide_by_the_replicas_train(seen: Any) -> None:
    assert seen["arrays"]
    assert seen["accuracies"] == [pytest.approx(seen["accuracies"][-1], abs=1e-6)] * 3
    assert seen["predicted"] == [101, 3]


def test_a_first_batch_that_does_not_divide_is_refused_by_keras_3_as_on_a_tpu(seen: Any) -> None:
    """Keras 3 averages the replicas' first batch to see its shape; TPUStrategy adds its parts just so."""
    refused = seen["one batch that does not divide"].startswith("InvalidArgumentError: ")
    assert refused == (seen["keras"] == "keras")
    if refused:
        assert "Inputs to operation AddN of type AddN must have the same size and shape" in str(seen)


def test_a_model_compiled_by_xla_trains(seen: Any) -> None:
    assert seen["jit_compile"]


def test_mixed_precision_computes_in_bfloat16_and_keeps_float32(seen: Any) -> None:
    assert seen["mixed"]
    compute, kept = seen["mixed types"]
    assert compute == "bfloat16"
    assert "float32" in kept


def test_weights_models_and_checkpoints_come_back(seen: Any) -> None:
    assert seen["weights loaded"]
    assert seen["model loaded"]
    assert seen["served"]
    assert seen["restored"]
    assert seen["kept"] == ["ckpt-2", "ckpt-3"]


def test_training_goes_on_at_the_epoch_that_was_interrupted(seen: Any) -> None:
    assert seen["epochs"] == [0, 1, 2, 2, 3]
    assert seen["event files"]


def test_an_optimizer_updates_in_branches_and_loops_of_a_replica(seen: Any) -> None:
    assert seen["branch not taken"] == [1.0, 1.0]
    assert seen["branch taken"] == pytest.approx([0.6, 0.6])
    assert seen["loop"] == pytest.approx([0.6**4, 0.6**4])
    assert seen["updates"] == 4


def test_gradients_are_accumulated(seen: Any) -> None:
    assert seen.get("accumulated", seen["keras"] == "tf_keras"), "only Keras 3 has it"


def test_functions_compiled_by_xla_run_in_and_around_replicas(seen: Any) -> None:
    assert (seen["jit itself"], seen["jit nested"], seen["jit around"]) == ([6.0] * 2, [7.0] * 2, [6.0] * 2)


def test_a_strategys_devices_have_tpu_names(seen: Any) -> None:
    place = "/job:localhost/replica:0/task:0/device:TPU:"
    assert seen["worker devices"] == [f"{place}0", f"{place}1"]
