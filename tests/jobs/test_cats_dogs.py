"""The job cats_dogs.py: its augmentation, its evaluation, and that a resumed run matches."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.jobs.class_folders import shards
from tests.jobs.reports import report_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The program's report: 37 images to train on, 11 to evaluate on, 8 in a batch."""
    folder = tmp_path_factory.mktemp("cats_dogs")
    shards(folder / "pets", "cats_dogs", ("cat", "dog"), {"train": 37, "test": 11}, size=(50, 40))
    shards(folder / "more", "pets", ("cat", "dog", "mouse"), {"train": 9, "test": 3})
    return report_of("cats_dogs", folder)


def test_a_resumed_run_ends_with_the_same_weights_and_seeds_of_dropout(report: Any) -> None:
    training = report["training"]
    # one for each step: they are in the checkpoint
    assert [count for _, count in training["seeds"]] == [8, 8]
    assert training["differing"] == []
    full, resumed = (training["metrics"][name] for name in ("full", "resumed"))
    assert training["results"]["resumed"]["step"] == training["results"]["full"]["step"] == 8
    for name in ("val_loss", "val_accuracy"):
        assert resumed[name] == full[name], name


def test_every_image_is_evaluated_once_though_the_last_batch_is_not_full(report: Any) -> None:
    one_by_one, metrics = report["evaluation"], report["training"]["metrics"]["full"]
    assert one_by_one["examples"] == 11
    assert 0 < one_by_one["correct"] < 11
    assert metrics["val_accuracy"] == pytest.approx(one_by_one["correct"] / 11, rel=1e-6)
    assert metrics["val_loss"] == pytest.approx(one_by_one["loss"], rel=1e-4)


def test_augmentation_depends_on_the_seed_alone_and_keeps_shape_range_and_label(report: Any) -> None:
    augmented = report["augmented"]
    assert augmented["same"]
    assert augmented["different"] == 40
    assert augmented["labels"] in ([[0.0, "float32"]], [[1.0, "float32"]])
    assert augmented["shapes"] == [[128, 128, 3, "uint8"]]
    (low, high), (lowest, highest) = augmented["range"], augmented["range before"]
    assert lowest <= low < high <= highest
    assert augmented["plain"] == [200]  # the edges get no dark pixels


def test_images_are_sheared_zoomed_and_flipped_around_their_middle_within_the_limits(report: Any) -> None:
    shears = [math.atan2(-b, d) for _, b, _, d, _, _ in report["transforms"]]
    wide = [abs(a) for a, *_ in report["transforms"]]
    high = [math.hypot(b, d) for _, b, _, d, _, _ in report["transforms"]]
    assert all(c == pytest.approx(0, abs=1e-3) for _, _, c, *_ in report["transforms"])  # level lines
    assert all([x, y] == pytest.approx([0, 0], abs=0.05) for *_, x, y in report["transforms"])
    assert all(-0.21 < shear < 0.21 for shear in shears)
    assert min(shears) < -0.15
    assert max(shears) > 0.15
    for zooms in (wide, high):
        assert all(0.79 < zoom < 1.21 for zoom in zooms)
        assert min(zooms) < 0.84
        assert max(zooms) > 1.16
    assert 18 <= sum(a < 0 for a, *_ in report["transforms"]) <= 42  # of 60 are flipped


def test_three_classes_are_refused(report: Any) -> None:
    message = "This job needs a dataset of 2 classes; this one has 3: cat, dog, mouse."
    assert report["three classes"] == message
