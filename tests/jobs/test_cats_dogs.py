"""The job cats_dogs.py: its augmentation, its evaluation, and that a stop makes no difference."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.jobs.class_folders import shards
from tests.jobs.reports import report_of


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the program says: 37 pictures to train on, 11 to evaluate on, 8 in a batch."""
    folder = tmp_path_factory.mktemp("cats_dogs")
    shards(folder / "pets", "cats_dogs", ("cat", "dog"), {"train": 37, "test": 11}, size=(50, 40))
    shards(folder / "more", "pets", ("cat", "dog", "mouse"), {"train": 9, "test": 3})
    return report_of("cats_dogs", folder)


def test_a_stopped_run_that_goes_on_ends_with_the_same_weights_and_seeds_of_dropout(facts: Any) -> None:
    training = facts["training"]
    # one for each step: they are in the checkpoint
    assert [moved for _, moved in training["seeds"]] == [8, 8]
    assert training["unlike"] == []
    whole, stopped = (training["numbers"][name] for name in ("whole", "stopped"))
    assert training["results"]["stopped"]["step"] == training["results"]["whole"]["step"] == 8
    for name in ("val_loss", "val_accuracy"):
        assert stopped[name] == whole[name], name


def test_every_picture_is_evaluated_once_though_the_last_batch_is_not_full(facts: Any) -> None:
    one_by_one, numbers = facts["evaluation"], facts["training"]["numbers"]["whole"]
    assert one_by_one["examples"] == 11
    assert 0 < one_by_one["right"] < 11
    assert numbers["val_accuracy"] == pytest.approx(one_by_one["right"] / 11, rel=1e-6)
    assert numbers["val_loss"] == pytest.approx(one_by_one["loss"], rel=1e-4)


def test_augmentation_depends_on_the_seed_alone_and_keeps_shape_range_and_label(facts: Any) -> None:
    augmented = facts["augmented"]
    assert augmented["same"]
    assert augmented["different"] == 40
    assert augmented["labels"] in ([[0.0, "float32"]], [[1.0, "float32"]])
    assert augmented["shapes"] == [[128, 128, 3, "uint8"]]
    (low, high), (lowest, highest) = augmented["range"], augmented["range before"]
    assert lowest <= low < high <= highest
    assert augmented["plain"] == [200]  # nothing dark comes in at the edges


def test_pictures_are_sheared_zoomed_and_flipped_around_their_middle_as_far_as_is_said(facts: Any) -> None:
    shears = [math.atan2(-b, d) for _, b, _, d, _, _ in facts["maps"]]
    wide, high = (
        [abs(one[0]) for one in facts["maps"]],
        [math.hypot(one[1], one[3]) for one in facts["maps"]],
    )
    assert all(one[2] == pytest.approx(0, abs=1e-3) for one in facts["maps"])  # level lines stay level
    assert all(one[4:] == pytest.approx([0, 0], abs=0.05) for one in facts["maps"])
    assert all(-0.21 < shear < 0.21 for shear in shears)
    assert min(shears) < -0.15
    assert max(shears) > 0.15
    for zooms in (wide, high):
        assert all(0.79 < zoom < 1.21 for zoom in zooms)
        assert min(zooms) < 0.84
        assert max(zooms) > 1.16
    assert 18 <= sum(one[0] < 0 for one in facts["maps"]) <= 42  # of 60 are flipped


def test_three_classes_are_refused(facts: Any) -> None:
    said = "Two classes are told apart here; the dataset has 3: cat, dog, mouse."
    assert facts["three classes"] == said
