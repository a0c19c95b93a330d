"""The BERT job: both loops train alike, a resumed run matches, padding is masked, published weights load."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.reports import report_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return report_of("bert", tmp_path_factory.mktemp("bert"))


def test_fit_and_the_custom_loop_train_alike_from_the_same_start(report: Any) -> None:
    fit, custom = report["fit"]["figures"], report["custom"]["figures"]
    assert len(fit["loss"]) == 3
    assert fit["loss"][-1] < fit["loss"][0]
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert custom[name] == pytest.approx(fit[name], abs=2e-4), name
    assert report["compared"] > 50
    assert report["largest_difference"] < 1e-4


@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(report: Any, loop: str) -> None:
    # in the middle of the third epoch of 8 steps
    assert "ckpt-18" in report[loop]["resumed"].splitlines()[1]
    assert report[loop]["different_after_resume"] == []


def test_each_test_example_counts_once(report: Any) -> None:
    assert report["fit"]["figures"]["val_accuracy"][-1] == pytest.approx(report["accuracy"], abs=5.1e-5)
    assert report["custom"]["figures"]["val_accuracy"][-1] == pytest.approx(report["accuracy"], abs=5.1e-5)
    assert 0 < report["accuracy"] < 1


def test_padding_does_not_change_the_output(report: Any) -> None:
    assert report["padding_changes"] < 1e-4
    assert report["visible_changes"] > 0.01


def test_the_dropout_mask_depends_only_on_the_seed(report: Any) -> None:
    assert report["same_seed"] == 0
    assert report["next_seed"] > 0.01
    assert report["dropout"] > 0.01


def test_a_published_checkpoint_sets_all_variables_but_the_classifiers(report: Any) -> None:
    assert "39 variables from " in report["loaded"]
    assert report["unchanged"] == ["(16, 4)", "(4,)"]
    assert report["published_numbers"] == 0


def test_the_encoder_computes_what_the_paper_says(report: Any) -> None:
    # rounding: float32 against float64, over values up to 4
    assert report["encoded_difference"] < 1e-4
    assert report["pooled_difference"] < 1e-4
    assert report["pooled_range"] > 0.5


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("missing", "layer_1/output/dense/kernel: none in the checkpoint, [24, 16] in the model"),
        ("extra", "layer_2/output/dense/kernel: [24, 16] in the checkpoint, none in the model"),
        ("transposed", "layer_1/output/dense/kernel: [16, 24] in the checkpoint, [24, 16] in the model"),
        ("vocabulary", "The dataset's vocabulary has 41 entries"),
        ("length", "The texts have 64 tokens"),
    ],
)
def test_a_preset_that_does_not_fit_is_refused(report: Any, preset: str, message: str) -> None:
    assert message in report["refused"][preset]


def test_biases_and_normalizations_do_not_decay(report: Any) -> None:
    assert report["not_decayed"] == ["beta", "bias", "gamma"]
    assert report["decayed"] == [
        "kernel",
        "position_embeddings",
        "token_type_embeddings",
        "word_embeddings",
    ]


def test_the_learning_rate_rises_then_falls_to_zero(report: Any) -> None:
    falling = [0.5 * (10 - step) / 8 for step in range(2, 11)]
    assert report["rates"] == pytest.approx([0.25, 0.5, *falling])
