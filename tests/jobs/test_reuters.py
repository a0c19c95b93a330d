"""The Reuters job: logits for the loss, sizes from the dataset, exact evaluation, resuming."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.jobs.reports import report_of

pytestmark = pytest.mark.slow

CLASSES = 8


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return report_of("reuters", tmp_path_factory.mktemp("reuters"))


def test_the_loss_falls_below_the_least_one_of_probabilities_taken_for_logits(report: Any) -> None:
    # logits between 0 and 1: the loss is least with 1 for the right class and 0 for the others
    floor = math.log(math.e + CLASSES - 1) - 1
    assert report["figures"]["loss"][-1] < floor / 2
    least, greatest = report["sums_of_outputs"]
    assert (least, greatest) != pytest.approx((1, 1), abs=1e-3)
    assert report["dtype"] == "float32"


def test_vocabulary_and_classes_are_those_of_the_datasets_files(report: Any) -> None:
    assert report["embedding"] == [40, 7]
    assert report["outputs"] == [45, CLASSES]


def test_each_test_example_counts_once(report: Any) -> None:
    assert report["figures"]["val_accuracy"][-1] == pytest.approx(report["accuracy"], abs=5.1e-5)
    assert report["figures"]["val_top_5"][-1] == pytest.approx(report["top_5"], abs=5.1e-5)
    assert 0.5 < report["accuracy"] < report["top_5"] < 1.0


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(report: Any) -> None:
    assert "ckpt-135" in report["resumed"].splitlines()[1]  # in the middle of the 23rd epoch of 6 steps
    assert report["variables"] > 20
    assert report["different_after_resume"] == []
