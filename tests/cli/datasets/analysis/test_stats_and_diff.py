"""`data stats` and `data diff` on pictures and rows that were uploaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket

Command = Callable[..., CommandResult]
Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def make_pictures(folder: Path) -> Pixels:
    """Write pictures of two classes in two splits, one of them in both; return the training pictures."""
    rng = np.random.default_rng(0)
    train = rng.integers(0, 256, (6, 10, 12, 3), np.uint8)
    test = rng.integers(0, 256, (2, 10, 12, 3), np.uint8)
    for split, pixels in (("train", train), ("test", test)):
        for number, picture in enumerate(pixels):
            file = folder / split / ("cat", "dog")[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(file)
    shutil.copy(folder / "train/cat/0.png", folder / "test/cat/leak.png")
    return train


@pytest.fixture
def train(simulator: RunningSimulator, tpuctl: Command) -> Pixels:
    pixels = make_pictures(Path("pets"))
    assert tpuctl("data", "upload", "pets", "pets").code == 0
    return pixels


@pytest.mark.usefixtures("simulator")
def test_stats_has_values_for_normalisation_and_names_a_leak(tpuctl: Command, train: Pixels) -> None:
    content = json.loads(tpuctl("data", "stats", "pets", "--json").out)["stats"]
    split = content["splits"]["train"]
    assert (split["records"], split["read"], content["sample"]) == (6, 6, False)
    assert split["classes"]["label"] == {"cat": 3, "dog": 3}
    channels = split["pictures"]["image"]["channels"]["3"]
    assert [channel["mean"] for channel in channels] == pytest.approx((train / 255).mean((0, 1, 2)))
    assert [channel["std"] for channel in channels] == pytest.approx((train / 255).std((0, 1, 2)))
    assert content["duplicates"]["leaks"] == [{"splits": ["train", "test"], "contents": 1}]
    text = tpuctl("data", "stats", "pets")
    mean = ", ".join(f"{channel['mean']:.4f}" for channel in channels)
    assert f"mean           [{mean}]" in text.out
    assert "in train and test  1 (a leak)" in text.out
    assert "Next: tpuctl data describe pets/1.0.0" in text.err


@pytest.mark.usefixtures("simulator")
def test_stats_of_a_sample_say_so(tpuctl: Command) -> None:
    numbers = np.random.default_rng(0).normal(5, 2, 50)
    rows = [
        f"{number:.3f},{'x' * place},{'' if place == 3 else place}" for place, number in enumerate(numbers)
    ]
    Path("rows.csv").write_text("\n".join(["x,text,n", *rows]))
    assert tpuctl("data", "upload", "rows", "rows.csv").code == 0
    content = json.loads(tpuctl("data", "stats", "rows", "--json").out)["stats"]["splits"]["train"]
    mean = numbers.round(3).astype(np.float32).mean()
    assert content["numbers"]["x"]["mean"] == pytest.approx(mean, abs=1e-6)
    assert content["numbers"]["text"]["max"] == 49
    assert (content["numbers"]["n"]["count"], content["numbers"]["n"]["missing"]) == (49, 1)
    sample = tpuctl("data", "stats", "rows", "--sample", "7")
    assert "These are figures of a sample" in sample.err
    assert json.loads(tpuctl("data", "stats", "rows", "--sample", "7", "--json").out)["stats"]["sample"]
    assert not json.loads(tpuctl("data", "stats", "rows", "--sample", "0", "--json").out)["stats"]["sample"]


@pytest.mark.usefixtures("simulator")
@pytest.mark.usefixtures("train")
def test_diff_says_what_is_only_in_one_moved_and_changed(tpuctl: Command) -> None:
    same = tpuctl("data", "diff", "pets", "pets")
    sentence = "There are no differences between pets/1.0.0 and pets/1.0.0: 9 records are the same."
    assert (same.code, same.out) == (0, sentence + "\n")
    Path("pets/train/cat/2.png").rename("pets/train/dog/2.png")
    Path("pets/train/dog/1.png").rename("pets/test/dog/9.png")
    Path("pets/test/dog/1.png").unlink()
    assert tpuctl("data", "upload", "pets", "pets", "--version", "2.0.0").code == 0
    content = json.loads(tpuctl("data", "diff", "pets/1.0.0", "pets/2.0.0", "--json").out)["diff"]
    records = content["records"]
    assert content["differs"]
    assert records["same"] == 6
    assert [records[name]["count"] for name in ("only_a", "only_b", "moved", "changed")] == [1, 0, 1, 1]
    text = tpuctl("data", "diff", "pets/1.0.0", "pets/2.0.0")
    assert text.code == 0
    assert "split train  6 records   5 records" in text.out


@pytest.mark.usefixtures("simulator")
@pytest.mark.usefixtures("train")
def test_a_missing_shard_is_named(tpuctl: Command, bucket: Bucket) -> None:
    name = "datasets/pets/1.0.0/pets-test.tfrecord-00000-of-00001"
    shard = bucket.stat(name)
    assert shard
    bucket.remove(shard)
    for command in (("stats", "pets"), ("diff", "pets", "pets")):
        result = tpuctl("data", *command)
        assert result.code == 4
        assert "pets-test.tfrecord-00000-of-00001 is missing." in result.err
        assert "tpuctl data verify pets/1.0.0" in result.err


@pytest.mark.usefixtures("simulator")
def test_a_dataset_that_does_not_exist_is_named(tpuctl: Command) -> None:
    for command in (("stats", "nothing"), ("diff", "nothing", "nothing")):
        result = tpuctl("data", *command)
        assert result.code == 4
        assert "There is no dataset 'nothing'" in result.err
