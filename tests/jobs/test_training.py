"""What the jobs share: batches, evaluation, going on, speed, the roofline model; one program looks at all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.datasets import shards, write_mnist
from tests.jobs.reports import report_of
from tests.paths import JOBS, ROOT

NUMBERS = 37


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the program saw."""
    folder = tmp_path_factory.mktemp("training")
    rows = folder / "numbers.csv"
    rows.write_text("number\n" + "".join(f"{one}\n" for one in range(NUMBERS)))
    shards(rows, folder / "numbers", "numbers")
    shards(write_mnist(folder / "mnist.npz", train=64, test=13), folder / "mnist", "mnist")
    return report_of("training", folder)


class TestBatches:
    def test_every_epoch_has_every_example_once_in_an_order_of_its_own(self, seen: Any) -> None:
        epochs = [seen["stream"][start : start + NUMBERS] for start in (0, NUMBERS, 2 * NUMBERS)]
        assert [sorted(one) for one in epochs] == [list(range(NUMBERS))] * 3
        assert len({tuple(one) for one in epochs}) == 3

    def test_the_order_depends_on_the_seed_alone(self, seen: Any) -> None:
        assert seen["again"]
        assert seen["other seed"]

    @pytest.mark.parametrize("how", ["kept", "read anew", "augmented", "augmented anew"])
    def test_a_run_that_goes_on_sees_the_batches_it_would_have_seen(self, seen: Any, how: str) -> None:
        assert seen[f"goes on, {how}"] == []

    def test_no_two_examples_are_augmented_alike(self, seen: Any) -> None:
        different, augmented = seen["seeds"]
        assert different == augmented == 14 * 8
        assert seen["seeds of two hosts"] == 0

    def test_hosts_read_shards_of_their_own(self, seen: Any) -> None:
        first, second = (set(one) for one in seen["hosts"])
        assert not first & second
        assert first | second == set(range(NUMBERS))
        assert "4 shards are too few for 5 hosts" in seen["too few shards"]


class TestEvaluation:
    @pytest.mark.parametrize("hosts", ["1", "2"])
    def test_every_example_comes_once_and_the_rest_weighs_nothing(self, seen: Any, hosts: str) -> None:
        found = seen[f"once, {hosts}"]
        assert Counter(found["values"]) == Counter(range(NUMBERS))
        assert found["sizes"] == [8 // int(hosts)]
        assert found["places"] == 40
        assert found["weights"] == pytest.approx([0, 40 / NUMBERS])
        assert found["sum"] == pytest.approx(40)


class TestGoingOn:
    @pytest.mark.parametrize("how", ["fit", "loop"])
    def test_after_stops_at_any_step_it_ends_with_the_same_weights_to_the_last_bit(
        self, seen: Any, how: str
    ) -> None:
        found = seen[how]
        assert "going on from" in found["rest"]
        assert "ckpt-6\n" in found["rest"]
        assert [one for one in found["unlike"] if "save_counter" not in one] == []
        assert found["results"][0]["step"] == found["results"][1]["step"] == 12

    @pytest.mark.parametrize("how", ["fit", "loop"])
    def test_the_same_seed_gives_the_same_weights(self, seen: Any, how: str) -> None:
        assert seen[how]["unlike again"] == []

    def test_in_a_loop_an_epochs_numbers_are_those_of_all_its_steps(self, seen: Any) -> None:
        whole, rest = seen["loop"]["figures"]
        assert rest["loss"] == whole["loss"][1:]
        assert rest["accuracy"] == whole["accuracy"][1:]

    def test_what_is_evaluated_is_the_same(self, seen: Any) -> None:
        whole, rest = seen["fit"]["figures"]
        assert rest["val_loss"] == whole["val_loss"][1:]
        assert rest["val_accuracy"] == whole["val_accuracy"][1:]
        assert whole["val_accuracy"][-1] * 13 == pytest.approx(
            round(whole["val_accuracy"][-1] * 13), abs=1e-3
        )

    def test_a_preempted_run_saves_ends_with_143_and_goes_on(self, seen: Any) -> None:
        assert seen["code"] == 143
        assert "going on from" in seen["went on"]
        assert "ckpt-6\n" in seen["went on"].split("epoch")[0]
        assert "ckpt-12.index" in seen["checkpoints"]

    def test_a_run_with_nothing_left_to_do_leaves_its_result_as_it_was(self, seen: Any) -> None:
        before, after = seen["once more"]
        assert after == before
        assert before["val_accuracy"] > 0

    def test_going_on_with_another_batch_is_refused(self, seen: Any) -> None:
        assert "is of epochs of 4 steps of 16 examples; these would have 8 of 8." in seen["other batch"]

    def test_a_checkpoint_of_another_model_is_refused(self, seen: Any) -> None:
        assert "is of another model" in seen["other model"]

    def test_the_weights_are_among_the_results(self, seen: Any) -> None:
        assert set(seen["weights"]) == {"result.json", "fashion_mnist.weights.h5"}


def test_with_nothing_but_a_model_folder_all_goes_below_it(seen: Any) -> None:
    assert seen["places"] == ["checkpoints", "fashion_mnist.weights.h5", "result.json", "tensorboard"]


class TestSpeed:
    def test_the_first_call_is_left_out(self, seen: Any) -> None:
        assert seen["lap"] == [4, 8.0, 2.0, 0, 4, 8.0, 2.0]

    def test_waiting_for_a_slow_input_is_told_from_a_slow_step(self, seen: Any) -> None:
        assert seen["waiting"]["slow input"] > 0.5 > seen["waiting"]["slow step"]

    def test_waiting_is_a_share_of_the_time_also_after_a_stop_within_an_epoch(self, seen: Any) -> None:
        for how in ("fit", "loop"):
            assert all(0 <= result["waiting_for_input"] <= 1 for result in seen[how]["results"])

    def test_tensorboard_has_the_curves_and_a_profile(self, seen: Any) -> None:
        curves = {(tag, step) for tag, step in seen["curves"]}
        for tag in (
            "loss",
            "accuracy",
            "val_accuracy",
            "step_ms",
            "examples_per_second",
            "waiting_for_input",
        ):
            assert (tag, 8) in curves, tag
        assert seen["profiles"] == 1


class TestRoofline:
    def test_products_are_counted_forward_and_backward(self, seen: Any) -> None:
        """Of a first layer only the weights have a gradient; of the others its inputs have one, too."""
        first, second = 2 * 8 * 100 * 50, 2 * 8 * 50 * 10
        assert sorted(seen["dense"]) == sorted([first, first, second, second, second])
        first, second = 2 * 2 * 10 * 10 * 3 * 3 * 3 * 16, 2 * 2 * 3 * 3 * 5 * 5 * 16 * 4
        assert sorted(seen["convolution"]) == sorted([first, first, second, second, second])
        assert seen["einsum"] == seen["ellipsis"] == [2 * 2 * 5 * 7 * 6] * 2

    def test_a_large_product_takes_its_flops_at_the_peak(self, seen: Any) -> None:
        """Forward and the gradient of the weights, 65,536 examples on each of four chips: 4.4 TFLOP."""
        flops = 2 * 2 * 65536 * 4096 * 4096
        update = 4 * 3 * (4096 * 4096 + 4096) / 900e9
        assert f"{1000 * (flops / 123e12 + update):.2g} ms/step at least" in seen["compute"]
        assert "by a roofline model and not measured" in seen["compute"]

    def test_a_small_one_takes_the_time_to_move_its_operands(self, seen: Any) -> None:
        moved = 2 * 2 * (2 * 4096 * 2 + 4096 * 4096)
        update = 4 * 3 * (4096 * 4096 + 4096)
        assert f"{1000 * (moved + update) / 900e9:.2g} ms/step at least" in seen["memory"]

    def test_several_types_are_told_of(self, seen: Any) -> None:
        assert "expected on a v4-8, by a roofline" in seen["two types"]
        assert "expected on a v6e-4, by a roofline" in seen["two types"]

    def test_an_unknown_type_has_no_model(self, seen: Any) -> None:
        assert seen["unknown"].startswith("no roofline model for 'v9-8', only for v2, v3")

    def test_the_chips_are_those_of_the_catalogue(self) -> None:
        """The jobs import nothing of tpuctl, so they have a table of their own."""
        text = (JOBS / "training/roofline.py").read_text()
        catalogue = json.loads((ROOT / "tpuctl/accelerators.json").read_text())
        for one in catalogue["generations"]:
            cores = one["cores_per_chip"] if one["counts"] == "cores" else 1
            numbers = f"{cores}, {one['peak_bf16_tflops_per_chip']}, {one['hbm_gbps_per_chip']}"
            assert f'"{one["prefix"]}": Chip({numbers}),' in text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("no data", "Set TPUCTL_DATA_DIR, or give --data FOLDER."),
        ("digits without data", "Set TPUCTL_DATA_DIR, or give --data FOLDER."),
        ("no shards", "There are no files *-train.tfrecord-* in "),
        ("no test split", "There are no files *-test.tfrecord-* in "),
        ("too large a batch", "The 64 training examples do not fill a batch of 1000."),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(seen: Any, asked: str, told: str) -> None:
    assert told in seen[asked]


@pytest.mark.parametrize("path", sorted(JOBS.rglob("*.py")), ids=lambda path: path.name)
def test_a_job_imports_nothing_of_tpuctl(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert not [one for one in lines if one.strip().startswith(("import tpuctl", "from tpuctl"))]


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.py")), ids=lambda path: path.stem)
def test_a_job_says_what_it_needs(path: Path) -> None:
    lines = path.read_text().split("# ///\n")[0].splitlines()
    assert lines[:3] == ["# /// script", '# requires-python = ">=3.10"', '# dependencies = ["tensorflow"]']
    assert '# accelerator = "v3-8"' in lines
    assert '# framework = "tensorflow"' in lines
