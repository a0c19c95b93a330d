"""What `data stats` shows of figures: every table and every line, and the JSON."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.running_simulator import CommandResult
from tpuctl.data.analysis.comparison import Duplicates
from tpuctl.data.analysis.contents import Moments
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets import analysis as flow
from tpuctl.flows.datasets.analysis import DatasetStats, PictureStats, SplitStats

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
