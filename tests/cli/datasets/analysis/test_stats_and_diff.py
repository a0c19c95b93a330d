"""What `data stats` and `data diff` show of what was uploaded and of figures that are given.

Every table, and the JSON.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.analysis.comparison import Comparison, Duplicates
from tpuctl.data.analysis.contents import Moments
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets import analysis as flow
from tpuctl.flows.datasets.analysis import DatasetDiff, DatasetStats, Difference, PictureStats, SplitStats

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


@pytest.mark.daily
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


Tpuctl = Callable[..., CommandResult]
NO_MOMENTS = Moments()
NUMBERS = Moments(4, 2.5, 5.0, 1.0, 4.0, 3)
BRIGHT, DARK = Moments(2, 0.75, 0.0, 0.75, 0.75), Moments(2, 0.25, 0.02, 0.15, 0.35)
PICTURES = PictureStats(
    height=Moments(2, 7.0, 2.0, 6.0, 8.0),
    width=Moments(2, 12.0, 8.0, 10.0, 14.0),
    brightness=DARK,
    channels={3: (BRIGHT, DARK, BRIGHT), 1: (DARK,)},
    sizes=((6, 10, 2), (8, 14, 1)),
    broken=1,
)
CLASSES = {f"c{number}": 30 - number for number in range(22)}
TRAIN = SplitStats(
    "train", 500, 480, 12_000, {"label": CLASSES}, {"x": NUMBERS, "y": NO_MOMENTS}, {"image": PICTURES}
)
TEST = SplitStats("test", 20, 20, 800, {"label": {"a": 1, "b": 3}}, {}, {})
DUPLICATES = Duplicates(
    within={"train": 2, "test": 0},
    leaks={("train", "test"): 1},
    examples=tuple(((("train", number), ("test", number + 1))) for number in range(4)),
    alike=5,
)
FOUND = DatasetStats(DatasetRef("rows", "1.0.0"), (TRAIN, TEST), DUPLICATES)


@pytest.fixture
def show_stats(tpuctl: Tpuctl, rows: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """The command on a dataset of which the flow returns given figures: a small one has few of them."""

    def shown(found: DatasetStats, *options: str) -> CommandResult:
        monkeypatch.setattr(flow, "stats", lambda *arguments, **named: found)
        return tpuctl("data", "stats", rows, *options)

    return shown


@pytest.mark.daily
def test_every_figure_is_shown(show_stats: Callable[..., CommandResult]) -> None:
    result = show_stats(FOUND)
    lines = [line.rstrip() for line in result.out.splitlines()]
    classes = [f"c{number:<6}{30 - number:<9}{(30 - number) / 429:.1%}" for number in range(20)]
    assert lines == [
        "SPLIT  RECORDS  READ  SIZE",
        "train  500      480   12.0 kB",
        "test   20       20    800 B",
        "",
        "train: classes of label",
        "CLASS  RECORDS  SHARE",
        *classes,
        "",
        "test: classes of label",
        "CLASS  RECORDS  SHARE",
        "b      3        75.0%",
        "a      1        25.0%",
        "",
        "numbers, and lengths of texts",
        "SPLIT  FIELD  COUNT  MEAN  STD      MIN  MAX  MISSING",
        "train  x      4      2.5   1.11803  1    4    3",
        "train  y      0      -     -        -    -    0",
        "",
        "train: image",
        "height              6 to 8",
        "width               10 to 14",
        "most frequent       6×10 (2), 8×14 (1)",
        "brightness          0.25 (std 0.1)",
        "mean of 1 channels  [0.2500]",
        "std of 1 channels   [0.1000]",
        "mean of 3 channels  [0.7500, 0.2500, 0.7500]",
        "std of 3 channels   [0.0000, 0.1000, 0.0000]",
        "not decoded         1",
        "",
        "duplicates in train       2",
        "in train and test         1 (a leak)",
        "pictures that look alike  5",
    ]
    assert [line for line in result.err.splitlines() if "sim]" not in line] == [
        "These are figures of a sample: duplicates outside it are not seen (--sample 0 reads all).",
        "And 2 more, the rarest c21 with 9.",
        *(f"The same: train record {number}, test record {number + 1}" for number in range(3)),
        "Next: tpuctl data describe rows/1.0.0",
    ]


def test_what_there_is_not_is_left_out(show_stats: Callable[..., CommandResult]) -> None:
    pictures = PictureStats(NO_MOMENTS, NO_MOMENTS, NO_MOMENTS, {3: (BRIGHT, DARK, BRIGHT)}, (), 0)
    split = SplitStats(
        "train", 20, 20, 800, {"label": dict.fromkeys(map(str, range(20)), 0)}, {}, {"image": pictures}
    )
    result = show_stats(DatasetStats(FOUND.ref, (split,), Duplicates({"train": 0}, {}, (), 0)))
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[3:6] == ["train: classes of label", "CLASS  RECORDS  SHARE", "0      0        0.0%"]
    assert lines[-5:] == [
        "train: image",
        "mean  [0.7500, 0.2500, 0.7500]",
        "std   [0.0000, 0.1000, 0.0000]",
        "",
        "duplicates  none",
    ]
    assert "figures of a sample" not in result.err
    assert "more, the rarest" not in result.err


def test_the_json_has_every_figure(show_stats: Callable[..., CommandResult]) -> None:
    def moments(
        count: int, mean: float, std: float, least: float, most: float, missing: int = 0
    ) -> dict[str, float]:
        return {"count": count, "mean": mean, "std": std, "min": least, "max": most, "missing": missing}

    bright, dark = moments(2, 0.75, 0.0, 0.75, 0.75), moments(2, 0.25, 0.1, 0.15, 0.35)
    content = show_stats(FOUND, "--json").json["stats"]
    train = content["splits"].pop("train")
    assert content == {
        "dataset": "rows/1.0.0",
        "sample": True,
        "splits": {
            "test": {
                "records": 20, "read": 20, "bytes": 800, "classes": {"label": {"a": 1, "b": 3}},
                "numbers": {}, "pictures": {},
            }
        },
        "duplicates": {
            "within": {"train": 2, "test": 0},
            "leaks": [{"splits": ["train", "test"], "contents": 1}],
            "examples": [[["train", number], ["test", number + 1]] for number in range(4)],
            "alike": 5,
        },
    }  # fmt: skip
    assert train == {
        "records": 500,
        "read": 480,
        "bytes": 12_000,
        "classes": {"label": CLASSES},
        "numbers": {"x": moments(4, 2.5, math.sqrt(1.25), 1.0, 4.0, 3), "y": {"count": 0, "missing": 0}},
        "pictures": {
            "image": {
                "height": moments(2, 7.0, 1.0, 6.0, 8.0),
                "width": moments(2, 12.0, 2.0, 10.0, 14.0),
                "brightness": dark,
                "channels": {"1": [dark], "3": [bright, dark, bright]},
                "sizes": [
                    {"height": 6, "width": 10, "count": 2},
                    {"height": 8, "width": 14, "count": 1},
                ],
                "broken": 1,
            }
        },
    }


A, B = DatasetRef("rows", "1.0.0"), DatasetRef("rows", "2.0.0")
FACTS = (Difference("feature x", "int64", None), Difference("split test", None, "4 records"))
RECORDS = Comparison(
    same=11, only_a=12, only_b=13, moved=14, changed=15,
    examples_a=tuple(("train", number) for number in range(4)),
    examples_b=(("test", 7),),
    examples_moved=tuple((("train", number), ("test", number + 1)) for number in range(3)),
    examples_changed=((("train", 8), ("train", 9)),),
)  # fmt: skip
NO_DIFFERENCE = Comparison(3, 0, 0, 0, 0, (), (), (), ())


@pytest.fixture
def show_diff(tpuctl: Tpuctl, rows: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """The command on a dataset of which the flow returns a given difference: small ones have few places."""

    def shown(difference: DatasetDiff, *options: str) -> CommandResult:
        monkeypatch.setattr(flow, "diff", lambda *arguments: difference)
        return tpuctl("data", "diff", rows, rows, *options)

    return shown


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_facts_and_records_are_tables(show_diff: Callable[..., CommandResult]) -> None:
    result = show_diff(DatasetDiff(A, B, FACTS, RECORDS))
    assert cells(result.out) == [
        ["rows/1.0.0", "rows/2.0.0"],
        ["feature x", "int64", "-"],
        ["split test", "-", "4 records"],
        [""],
        ["RECORDS", "COUNT", "SUCH AS"],
        ["the same", "11"],
        ["only in rows/1.0.0", "12", "train 0, train 1, train 2"],
        ["only in rows/2.0.0", "13", "test 7"],
        ["in another split", "14", "train 0 -> test 1, train 1 -> test 2"],
        ["with another label", "15", "train 8 -> train 9"],
    ]
    assert result.err.splitlines()[-1] == "Next: tpuctl data stats rows/2.0.0"


@pytest.mark.daily
def test_without_other_facts_there_are_the_records_alone(show_diff: Callable[..., CommandResult]) -> None:
    assert cells(show_diff(DatasetDiff(A, B, (), RECORDS)).out)[0] == ["RECORDS", "COUNT", "SUCH AS"]
    same = show_diff(DatasetDiff(A, B, (), NO_DIFFERENCE))
    sentence = "There are no differences between rows/1.0.0 and rows/2.0.0: 3 records are the same.\n"
    assert same.out == sentence
    assert "Next:" not in same.err


def test_the_json_has_every_place(show_diff: Callable[..., CommandResult]) -> None:
    assert show_diff(DatasetDiff(A, B, FACTS, RECORDS), "--json").json["diff"] == {
        "a": "rows/1.0.0",
        "b": "rows/2.0.0",
        "differs": True,
        "facts": [
            {"name": "feature x", "a": "int64", "b": None},
            {"name": "split test", "a": None, "b": "4 records"},
        ],
        "records": {
            "same": 11,
            "only_a": {"count": 12, "examples": [["train", number] for number in range(4)]},
            "only_b": {"count": 13, "examples": [["test", 7]]},
            "moved": {
                "count": 14,
                "examples": [[["train", number], ["test", number + 1]] for number in range(3)],
            },
            "changed": {"count": 15, "examples": [[["train", 8], ["train", 9]]]},
        },
    }
    assert show_diff(DatasetDiff(A, B, (), NO_DIFFERENCE), "--json").json["diff"]["differs"] is False
