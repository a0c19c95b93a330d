"""The job resnet.py: its network, its recipe, its input, and that a resumed run matches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.jobs.class_folders import shards
from tests.jobs.reports import report_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The program's report: 21 images to train on, 11 to evaluate on, 8 in a batch."""
    folder = tmp_path_factory.mktemp("resnet")
    shards(folder, "shades", ("red", "green", "blue"), {"train": 21, "validation": 11})
    waves().save(folder / "photograph.jpg", quality=90)
    waves().save(folder / "drawing.png")
    return report_of("resnet", folder)


def waves() -> Image.Image:
    """Return an image that gets brighter from left to right, with fine colours."""
    down, across = np.mgrid[0:90, 0:120]
    channels = (across * 2, down * 2, across + 60 * np.sin(across / 7) * np.cos(down / 9))
    return Image.fromarray(np.clip(np.stack(channels, -1), 0, 255).astype(np.uint8))


def test_a_resumed_run_ends_with_the_same_weights_momentum_and_statistics(report: Any) -> None:
    training = report["training"]
    assert training["statistics"] == 24  # moving means and variances of 12 batch normalisations
    assert training["differing"]["resumed"] == []
    full, resumed = (training["results"][name] for name in ("full", "resumed"))
    for name in ("step", "loss", "accuracy", "val_accuracy", "val_top_5"):
        assert resumed[name] == full[name], name


def test_every_image_is_evaluated_once_though_the_last_batch_is_not_full(report: Any) -> None:
    one_by_one, result = report["evaluation"], report["training"]["results"]["full"]
    assert one_by_one["examples"] == 11
    assert result["val_accuracy"] == one_by_one["correct"] / 11
    assert result["val_top_5"] == 1.0  # of three classes


def test_lars_trains_and_differs_from_sgd(report: Any) -> None:
    assert report["training"]["finite"]
    assert report["training"]["results"]["lars"]["loss"] < 5
    assert len(report["training"]["differing"]["lars"]) > report["training"]["variables"] / 2


def test_a_window_cropped_while_decoding_is_that_of_the_full_image_to_the_last_bit(report: Any) -> None:
    photograph, drawing = report["crops"]["photograph.jpg"], report["crops"]["drawing.png"]
    assert (photograph["largest_difference"], drawing["largest_difference"]) == (0, 0)
    assert photograph["shape"] == drawing["shape"] == [90, 120, 3]
    # colours are not interpolated, as they are by default
    assert 0 < photograph["mean, to the default"] < 2


def test_augmentation_depends_on_the_seed_alone_and_keeps_shape_and_label(report: Any) -> None:
    augmented = report["augmented"]
    assert augmented["same"]
    assert augmented["different"] == 100
    assert augmented["labels"] == [2]
    assert augmented["shapes"] == [[48, 48, 3, "uint8"]]
    assert 35 <= augmented["flipped"] <= 65  # of 100


def test_random_windows_lie_in_the_image_and_have_the_areas_and_shapes_of_the_recipe(report: Any) -> None:
    windows = report["windows"]["random"]
    areas = [height * width / (375 * 500) for _, _, height, width in windows]
    assert all(top >= 0 and left >= 0 for top, left, _, _ in windows)
    assert all(top + height <= 375 and left + width <= 500 for top, left, height, width in windows)
    assert all(0.078 < area <= 1 for area in areas)
    assert all(0.74 < width / height < 1.35 for _, _, height, width in windows)
    assert min(areas) < 0.15
    assert max(areas) > 0.75


def test_the_central_window_is_224_pixels_of_a_shorter_side_of_256(report: Any) -> None:
    assert report["windows"]["central"] == [24, 86, 328, 328]  # 375 * 224 / 256 = 328.1
    assert report["windows"]["central of one pixel"] == [0, 0, 1, 1]


GRADIENT, WEIGHT = np.array([[0.5, -1.0], [2.0, 0.25]]), np.array([[3.0, 0.0], [-4.0, 1.0]])


def lars(gradient: Any, weight: Any, decay: float) -> Any:
    """As in You et al. 2017, in float64."""
    norms = np.sqrt((weight**2).sum()), np.sqrt((gradient**2).sum())
    return 0.001 * norms[0] / (norms[1] + decay * norms[0]) * (gradient + decay * weight)


def test_lars_scales_by_the_norms_of_weights_and_gradient(report: Any) -> None:
    expected = lars(GRADIENT, WEIGHT, 0.01)
    assert report["lars"]["scaled"] == [pytest.approx(row, rel=1e-5) for row in expected.tolist()]
    assert expected[0, 0] == pytest.approx(0.001 * 5.09902 / (2.304886 + 0.0509902) * (0.5 + 0.03), rel=1e-6)
    assert report["lars"]["weights of zeros"] == GRADIENT.tolist()
    assert report["lars"]["gradient of zeros"][1] == pytest.approx([-0.04, 0.01])


def test_lars_takes_the_norm_of_the_sum_over_the_replicas_and_leaves_biases_alone(report: Any) -> None:
    kernel, bias = report["on two replicas"]  # with the gradients times 1 and times 2
    assert kernel == [pytest.approx(row, rel=1e-5) for row in lars(3 * GRADIENT, WEIGHT, 0.01).tolist()]
    assert bias == [1.5, -1.5]


def test_sgd_lets_weights_decay_but_not_biases(report: Any) -> None:
    kernel, bias = report["with decay"]
    assert kernel == [pytest.approx(row) for row in (GRADIENT + 0.01 * WEIGHT).tolist()]
    assert bias == [0.5, -0.5]


def test_the_learning_rate_rises_to_its_peak_and_falls_as_a_cosine(report: Any) -> None:
    steps = report["rates"]["steps"]  # to 2.0 in 10 steps, to 0 in 100 more
    assert [steps[step] for step in ("0", "4", "9", "10")] == pytest.approx([0.2, 1.0, 2.0, 2.0])
    assert steps["35"] == pytest.approx(1 + math.cos(math.pi / 4), rel=1e-5)
    assert steps["60"] == pytest.approx(1.0, rel=1e-5)
    assert 0 < steps["109"] < 0.001
    assert (steps["110"], steps["200"]) == (0.0, 0.0)
    assert report["rates"]["without warm-up"] == 2.0


def test_the_learning_rate_grows_with_the_batch_and_lars_takes_over_above_8192(report: Any) -> None:
    chosen = report["rates"]["chosen"]  # of 90 epochs of 100 steps
    assert chosen["256"] == ["sgd", 0.1, 500, 9000]
    assert chosen["1024"] == ["sgd", 0.4, 500, 9000]
    assert chosen["8192"] == ["sgd", pytest.approx(3.2), 500, 9000]
    assert chosen["16384"] == ["lars", pytest.approx(31.2 / math.sqrt(2)), 2500, 9000]
    assert chosen["32768"] == ["lars", 31.2, 2500, 9000]


def test_the_loss_is_the_cross_entropy_with_a_tenth_of_the_label_spread_over_all_classes(report: Any) -> None:
    logits = np.array([[2.0, 0.0, -1.0, 0.5], [0.0, 0.0, 3.0, 0.0]])
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    losses = [-0.9 * row[label] - 0.1 * row.mean() for row, label in zip(logs, (0, 1), strict=True)]
    assert report["loss"] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize(("depth", "weights", "blocks"), [("18", 11_689_512, 8), ("50", 25_557_032, 16)])
def test_the_networks_are_those_that_were_published(
    report: Any, depth: str, weights: int, blocks: int
) -> None:
    network = report["networks"][depth]
    assert network["weights"] == weights
    assert network["zero gammas"] == blocks
    # version 1.5: of three stages the 3x3 convolution has the stride, and the shortcut
    assert network["strided kernels"] == [1, 1, 1, 3, 3, 3, 7]
    assert (network["inputs"], network["inside"], network["logits"]) == ("uint8", "bfloat16", "float32")
