"""What the pictures of a source are, in a line, and those of several fields in one report."""

from __future__ import annotations

from collections import Counter

import pytest

from tpuctl.data.images.report import ImageReport, merged, ordered

FIRST = ImageReport(
    5, {"RGB": 3, "grey": 1}, 3, 2, {"from WebP": 1, "to 3 channels": 2}, 1, {"cannot be decoded": 1}
)
SECOND = ImageReport(4, {"grey": 4}, 1, sampled=True)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (ImageReport(2, {"RGB": 2}, 3), "2 pictures: 2 RGB"),
        (ImageReport(1, {"RGB": 1}, 3), "1 picture: 1 RGB"),
        (ImageReport(0, {}, None), "0 pictures"),
        (ImageReport(1200, {"RGB": 1100, "grey": 100}, 3), "1,200 pictures: 1,100 RGB, 100 grey"),
        (SECOND, "4 pictures looked at: 4 grey"),
        (
            ImageReport(2, {"RGB": 2}, 3, 1000, {"to 3 channels": 1000}),
            "2 pictures: 2 RGB; 1,000 will be converted to 3 channels",
        ),
        (
            FIRST,
            "5 pictures: 3 RGB, 1 grey; 2 will be converted: 1 from WebP, 2 to 3 channels; "
            "1 cannot be used: 1 cannot be decoded",
        ),
    ],
)
def test_a_summary_has_only_what_there_is(report: ImageReport, text: str) -> None:
    assert report.summary == text


def test_several_fields_have_one_report() -> None:
    assert merged([]) is None
    assert merged([FIRST]) is FIRST
    assert merged([FIRST, SECOND]) == ImageReport(
        9, {"grey": 5, "RGB": 3}, None, 2, {"to 3 channels": 2, "from WebP": 1}, 1,
        {"cannot be decoded": 1}, sampled=True,
    )  # fmt: skip
    both = merged([FIRST, FIRST])
    assert both is not None
    assert (both.channels, both.converted, both.bad, both.sampled) == (3, 4, 2, False)
    assert list(merged([FIRST, SECOND]).kinds) == ["grey", "RGB"]  # type: ignore[union-attr]


def test_the_most_come_first_and_the_same_by_name() -> None:
    counts = Counter({"b": 1, "a": 1, "z": 7, "c": 2})
    assert list(ordered(counts).items()) == [("z", 7), ("c", 2), ("a", 1), ("b", 1)]
