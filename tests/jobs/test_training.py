"""The package `training`: batches, evaluation, resuming, speed, the roofline model; one program runs it."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.datasets import shards, write_mnist
from tests.jobs.reports import report_of
from tests.paths import JOBS, ROOT

pytestmark = pytest.mark.slow

NUMBERS = 37


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The program's report."""
    folder = tmp_path_factory.mktemp("training")
    rows = folder / "numbers.csv"
    rows.write_text("number\n" + "".join(f"{number}\n" for number in range(NUMBERS)))
    shards(rows, folder / "numbers", "numbers")
    shards(write_mnist(folder / "mnist.npz", train=64, test=13), folder / "mnist", "mnist")
    return report_of("training", folder)


class TestBatches:
    def test_every_epoch_has_every_example_once_in_an_order_of_its_own(self, report: Any) -> None:
        epochs = [report["stream"][start : start + NUMBERS] for start in (0, NUMBERS, 2 * NUMBERS)]
        assert [sorted(epoch) for epoch in epochs] == [list(range(NUMBERS))] * 3
        assert len({tuple(epoch) for epoch in epochs}) == 3

    def test_the_order_depends_only_on_the_seed(self, report: Any) -> None:
        assert report["again"]
        assert report["other seed"]

    @pytest.mark.parametrize("pipeline", ["cached", "not cached", "augmented", "augmented, not cached"])
    def test_a_resumed_run_sees_the_batches_of_an_uninterrupted_one(self, report: Any, pipeline: str) -> None:
        assert report[f"resumed, {pipeline}"] == []

    def test_no_two_examples_are_augmented_alike(self, report: Any) -> None:
        different, augmented = report["seeds"]
        assert different == augmented == 14 * 8
        assert report["seeds of two hosts"] == 0

    def test_each_host_reads_its_own_shards(self, report: Any) -> None:
        first, second = (set(numbers) for numbers in report["hosts"])
        assert not first & second
        assert first | second == set(range(NUMBERS))
        assert "4 shards are too few for 5 hosts" in report["too few shards"]


class TestEvaluation:
    @pytest.mark.parametrize("hosts", ["1", "2"])
    def test_every_example_comes_once_and_the_padding_has_weight_0(self, report: Any, hosts: str) -> None:
        evaluation = report[f"once, {hosts}"]
        assert Counter(evaluation["values"]) == Counter(range(NUMBERS))
        assert evaluation["sizes"] == [8 // int(hosts)]
        assert evaluation["padded"] == 40
        assert evaluation["weights"] == pytest.approx([0, 40 / NUMBERS])
        assert evaluation["sum"] == pytest.approx(40)


class TestResuming:
    @pytest.mark.parametrize("loop", ["fit", "custom"])
    def test_after_stops_at_any_step_a_run_ends_with_the_same_weights_to_the_last_bit(
        self, report: Any, loop: str
    ) -> None:
        training = report[loop]
        assert "resuming from" in training["rest"]
        assert "ckpt-6\n" in training["rest"]
        assert [name for name in training["differing"] if "save_counter" not in name] == []
        assert training["results"][0]["step"] == training["results"][1]["step"] == 12

    @pytest.mark.parametrize("loop", ["fit", "custom"])
    def test_the_same_seed_gives_the_same_weights(self, report: Any, loop: str) -> None:
        assert report[loop]["differing again"] == []

    def test_in_a_custom_loop_the_metrics_of_an_epoch_cover_all_its_steps(self, report: Any) -> None:
        full, rest = report["custom"]["figures"]
        assert rest["loss"] == full["loss"][1:]
        assert rest["accuracy"] == full["accuracy"][1:]

    def test_the_evaluation_is_the_same(self, report: Any) -> None:
        full, rest = report["fit"]["figures"]
        assert rest["val_loss"] == full["val_loss"][1:]
        assert rest["val_accuracy"] == full["val_accuracy"][1:]
        assert full["val_accuracy"][-1] * 13 == pytest.approx(round(full["val_accuracy"][-1] * 13), abs=1e-3)

    def test_a_preempted_run_saves_exits_with_143_and_resumes(self, report: Any) -> None:
        assert report["code"] == 143
        assert "resuming from" in report["after preemption"]
        assert "ckpt-6\n" in report["after preemption"].split("epoch")[0]
        assert "ckpt-12.index" in report["checkpoints"]

    def test_a_run_with_no_steps_left_keeps_its_result(self, report: Any) -> None:
        before, after = report["no steps left"]
        assert after == before
        assert before["val_accuracy"] > 0

    def test_resuming_with_another_batch_size_is_refused(self, report: Any) -> None:
        assert "has epochs of 4 steps of 16 examples; this run has 8 steps of 8." in report["other batch"]

    def test_a_checkpoint_of_another_model_is_refused(self, report: Any) -> None:
        assert "is from another model" in report["other model"]

    def test_the_weights_are_in_the_output_folder(self, report: Any) -> None:
        assert set(report["weights"]) == {"result.json", "fashion_mnist.weights.h5"}


def test_with_only_a_model_folder_all_files_go_below_it(report: Any) -> None:
    assert report["folders"] == ["checkpoints", "fashion_mnist.weights.h5", "result.json", "tensorboard"]


class TestSpeed:
    def test_the_first_call_is_left_out(self, report: Any) -> None:
        assert report["lap"] == [4, 8.0, 2.0, 0, 4, 8.0, 2.0]

    def test_waiting_for_a_slow_input_is_distinguished_from_a_slow_step(self, report: Any) -> None:
        assert report["waiting"]["slow input"] > 0.5 > report["waiting"]["slow step"]

    def test_waiting_is_a_share_of_the_time_also_after_a_stop_within_an_epoch(self, report: Any) -> None:
        for loop in ("fit", "custom"):
            assert all(0 <= result["waiting_for_input"] <= 1 for result in report[loop]["results"])

    @pytest.mark.parametrize("loop", ["fit", "custom"])
    def test_step_time_and_rate_of_a_result_are_of_the_same_steps(self, report: Any, loop: str) -> None:
        for result in report[loop]["results"]:
            assert result["step_ms"] * result["examples_per_second"] == pytest.approx(1000 * 16)

    def test_tensorboard_has_the_curves_and_a_profile(self, report: Any) -> None:
        curves = {(tag, step) for tag, step in report["curves"]}
        for tag in (
            "loss",
            "accuracy",
            "val_accuracy",
            "step_ms",
            "examples_per_second",
            "waiting_for_input",
        ):
            assert (tag, 8) in curves, tag
        assert report["profiles"] == 1


class TestRoofline:
    def test_products_are_counted_forward_and_backward(self, report: Any) -> None:
        """In the first layer only the weights have a gradient, in the others also the inputs."""
        first, second = 2 * 8 * 100 * 50, 2 * 8 * 50 * 10
        assert sorted(report["dense"]) == sorted([first, first, second, second, second])
        first, second = 2 * 2 * 10 * 10 * 3 * 3 * 3 * 16, 2 * 2 * 3 * 3 * 5 * 5 * 16 * 4
        assert sorted(report["convolution"]) == sorted([first, first, second, second, second])
        assert report["einsum"] == report["ellipsis"] == [2 * 2 * 5 * 7 * 6] * 2

    def test_a_large_product_takes_the_time_of_its_flops(self, report: Any) -> None:
        """Forward and the gradient of the weights, 65,536 examples on each of four chips: 4.4 TFLOP."""
        flops = 2 * 2 * 65536 * 4096 * 4096
        update = 4 * 3 * (4096 * 4096 + 4096) / 900e9
        assert f"{1000 * (flops / 123e12 + update):.2g} ms/step at least" in report["compute"]
        assert "by a roofline model and not measured" in report["compute"]

    def test_a_small_product_takes_the_time_to_move_its_operands(self, report: Any) -> None:
        moved = 2 * 2 * (2 * 4096 * 2 + 4096 * 4096)
        update = 4 * 3 * (4096 * 4096 + 4096)
        assert f"{1000 * (moved + update) / 900e9:.2g} ms/step at least" in report["memory"]

    def test_several_types_are_estimated(self, report: Any) -> None:
        assert "expected on a v4-8, by a roofline" in report["two types"]
        assert "expected on a v6e-4, by a roofline" in report["two types"]

    def test_an_unknown_type_has_no_model(self, report: Any) -> None:
        assert report["unknown"].startswith("no roofline model for 'v9-8', only for v2, v3")

    def test_the_chips_are_those_of_the_catalogue(self) -> None:
        """The jobs import nothing of tpuctl, so they have their own table."""
        text = (JOBS / "training/roofline.py").read_text()
        catalogue = json.loads((ROOT / "tpuctl/accelerators.json").read_text())
        for generation in catalogue["generations"]:
            cores = generation["cores_per_chip"] if generation["counts"] == "cores" else 1
            peaks = f"{generation['peak_bf16_tflops_per_chip']}, {generation['hbm_gbps_per_chip']}"
            assert f'"{generation["prefix"]}": Chip({cores}, {peaks}),' in text


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("no data", "Set TPUCTL_DATA_DIR, or give --data FOLDER."),
        ("digits without data", "Set TPUCTL_DATA_DIR, or give --data FOLDER."),
        ("no shards", "There are no files *-train.tfrecord-* in "),
        ("no test split", "There are no files *-test.tfrecord-* in "),
        ("too large a batch", "The 64 training examples do not fill a batch of 1000."),
    ],
)
def test_a_mistake_is_refused_with_a_message(report: Any, mistake: str, message: str) -> None:
    assert message in report[mistake]


@pytest.mark.parametrize("path", sorted(JOBS.rglob("*.py")), ids=lambda path: path.name)
def test_a_job_imports_nothing_of_tpuctl(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert not [line for line in lines if line.strip().startswith(("import tpuctl", "from tpuctl"))]


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.py")), ids=lambda path: path.stem)
def test_a_job_declares_its_requirements(path: Path) -> None:
    lines = path.read_text().split("# ///\n")[0].splitlines()
    assert lines[:3] == ["# /// script", '# requires-python = ">=3.10"', '# dependencies = ["tensorflow"]']
    assert '# accelerator = "v3-8"' in lines
    assert '# framework = "tensorflow"' in lines


def test_nothing_beside_the_jobs_hides_a_package() -> None:
    """Scripts import from their folder first: there, a folder `jax` passed for JAX where that is missing."""
    trees = [ast.parse(path.read_text()) for path in JOBS.rglob("*.py")]
    imported = {
        name.partition(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    hidden = {path.stem for path in JOBS.iterdir()} & {*imported, "jax", "tensorflow", "torch", "keras"}
    assert hidden == {"training"}, "the module that jobs share is theirs"
