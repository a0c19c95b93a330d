"""What all images of a dataset have in common, and why one of them has to change or cannot be used.

What the pictures of a source are, in a line, and those of several fields in one report.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.data.images.zoo import ZOO
from tpuctl.data.images.header import ImageInfo, InvalidImage
from tpuctl.data.images.report import ImageReport, merged, ordered
from tpuctl.data.images.rule import HINTS, TURNED, ImageCounts, ImageKind, ImageRule, bad_kind, kind_of

RGB, GREY, GREY_CLEAR, CLEAR = (ImageKind(channels, "uint8", "png") for channels in (3, 1, 2, 4))
WIDE = ImageKind(1, "uint16", "png")
LYING = ImageKind(3, "uint8", "jpeg", ("turned upright (EXIF)",))
WEBP = ImageKind(3, "uint8", "WebP", ("from WebP",))
BAD = ImageKind(0, "", "", (), "is empty")
LARGE = RGB._replace(large=True)
TOO_LARGE = "is too large: at most 134 megapixels are decoded"


def counted(kinds: dict[ImageKind, int]) -> ImageCounts:
    counts = ImageCounts()
    for kind, number in kinds.items():
        counts.add(kind, number)
    return counts


@pytest.mark.parametrize(
    ("rule", "kind", "reasons"),
    [
        (ImageRule(), RGB, ()),
        (ImageRule(), GREY, ("to 3 channels",)),
        (ImageRule(1), RGB, ("to 1 channel",)),
        (ImageRule(), WIDE, ("to 3 channels", "to 8 bits")),
        (ImageRule(1, "uint16"), GREY, ("to 16 bits",)),
        (ImageRule(1, "uint16"), WIDE, ()),
        (ImageRule(None, None), WIDE, ()),
        (ImageRule(None), WIDE, ("to 8 bits",)),
        (ImageRule(4), WEBP, ("from WebP", "to 4 channels")),
    ],
)
def test_an_image_changes_where_it_differs_from_the_rule(
    rule: ImageRule, kind: ImageKind, reasons: tuple[str, ...]
) -> None:
    assert rule.reasons(kind) == reasons


@pytest.mark.parametrize(
    ("rule", "kind", "why"),
    [
        (ImageRule(), RGB, ""),
        (ImageRule(), BAD, "is empty"),
        (ImageRule(), LYING, ""),
        (ImageRule(turns=False), LYING, TURNED),
        (ImageRule(turns=False), WEBP, ""),
        (ImageRule(), LARGE, ""),
        (ImageRule(size=(1, 1)), LARGE, TOO_LARGE),
        (ImageRule(size=(1, 1)), RGB, ""),
        (ImageRule(1), LARGE, TOO_LARGE),
        (ImageRule(1), RGB, ""),
    ],
)
def test_what_cannot_be_used_says_why(rule: ImageRule, kind: ImageKind, why: str) -> None:
    assert rule.why_bad(kind) == why


def test_a_picture_that_may_not_be_turned_is_refused() -> None:
    lying = ZOO["lying.png"].make()
    with pytest.raises(InvalidImage) as refused:
        ImageRule(turns=False).apply(lying)
    assert (str(refused.value), refused.value.hint) == (TURNED, HINTS[TURNED])
    upright, info = ImageRule().apply(lying)
    assert (upright != lying, info.changes) == (True, ())
    plain = ZOO["drawing.png"].make()
    assert ImageRule(turns=False).apply(plain)[0] is plain


@pytest.mark.parametrize(
    ("rule", "channels", "dtype", "size"),
    [
        (ImageRule(None, None), 2, "uint8", (32, 48)),
        (ImageRule(4), 4, "uint8", (32, 48)),
        (ImageRule(None, "uint16"), 1, "uint16", (32, 48)),
        (ImageRule(size=(4, 6)), 3, "uint8", (4, 6)),
    ],
)
def test_an_image_is_brought_to_the_rule(
    rule: ImageRule, channels: int, dtype: str, size: tuple[int, int]
) -> None:
    data = ZOO["grey.png" if dtype == "uint16" else "clear-grey.png"].make()
    _, info = rule.apply(data)
    assert (info.channels, info.dtype, info.height, info.width) == (channels, dtype, *size)


@pytest.mark.parametrize(
    ("width", "height", "large"), [(1 << 14, 1 << 13, False), ((1 << 14) + 1, 1 << 13, True)]
)
def test_an_image_is_large_above_what_is_decoded(width: int, height: int, large: bool) -> None:
    info = ImageInfo(height, width, 3, "uint8", "png", ("x",))
    assert kind_of(info) == ImageKind(3, "uint8", "png", ("x",), "", large)
    ImageRule().check(info._replace(changes=()))
    for rule in (ImageRule(1), ImageRule(size=(1, 1))):
        if large:
            with pytest.raises(InvalidImage):
                rule.check(info)
        else:
            rule.check(info)


def test_an_unusable_image_is_counted_without_its_figures() -> None:
    error = InvalidImage("has 9 × 9 pixels", group="has more pixels")
    assert bad_kind(error) == ImageKind(0, "", "", (), "has more pixels")
    counts = ImageCounts()
    for data in (b"", ZOO["grey.png"].make(), ZOO["grey.png"].make()):
        counts.add_image(data)
    assert (counts.total, counts.images) == (3, 2)


@pytest.mark.parametrize(
    ("kinds", "channels", "rule"),
    [
        ({}, None, ImageRule(3, "uint8")),
        ({RGB: 1}, None, ImageRule(3, "uint8")),
        ({RGB: 1, GREY: 2}, None, ImageRule(1, "uint8")),
        ({RGB: 1, GREY: 1}, None, ImageRule(3, "uint8")),
        ({CLEAR: 1, GREY: 1}, None, ImageRule(3, "uint8")),
        ({RGB: 1, CLEAR: 2}, None, ImageRule(4, "uint8")),
        ({GREY_CLEAR: 2, RGB: 1}, None, ImageRule(4, "uint8")),
        ({GREY_CLEAR: 2}, None, ImageRule(2, "uint8")),
        ({BAD: 9, GREY: 1}, None, ImageRule(1, "uint8")),
        ({WIDE: 2, GREY: 1}, None, ImageRule(1, "uint16")),
        ({WIDE: 1, GREY: 1}, None, ImageRule(1, "uint8")),
        ({WIDE: 2, GREY: 1}, 3, ImageRule(3, "uint8")),
        ({WIDE: 2}, "keep", ImageRule(None, "uint16")),
        ({WIDE: 2, GREY: 1}, "keep", ImageRule(None, "uint8")),
        ({RGB: 2}, 1, ImageRule(1, "uint8")),
        ({RGB: 1, LYING: 1, GREY: 1}, None, ImageRule(3, "uint8")),
    ],
)
def test_most_images_decide_on_the_rule(
    kinds: dict[ImageKind, int], channels: object, rule: ImageRule
) -> None:
    assert counted(kinds).rule(channels) == rule  # type: ignore[arg-type]
    sized = counted(kinds).rule(channels, (7, 8))  # type: ignore[arg-type]
    assert (sized.channels, sized.dtype, sized.size) == (rule.channels, rule.dtype, (7, 8))


def test_a_report_counts_what_becomes_of_the_images() -> None:
    kinds = {RGB: 5, GREY: 2, WEBP: 1, BAD: 3, GREY._replace(changes=("from GIF",)): 4, LARGE: 1}
    report = counted(kinds).report(ImageRule(3), sampled=True)
    assert report == ImageReport(
        images=16,
        kinds={"RGB": 7, "grey": 6},
        channels=3,
        converted=7,
        reasons={"to 3 channels": 6, "from GIF": 4, "from WebP": 1},
        bad=3,
        bad_reasons={"is empty": 3},
        sampled=True,
    )
    small = counted(kinds).report(ImageRule(3, size=(1, 1)))
    assert (small.bad, small.bad_reasons, small.sampled) == (4, {"is empty": 3, TOO_LARGE: 1}, False)


@pytest.mark.parametrize(
    ("report", "summary"),
    [
        (ImageReport(0, {}, 3), "0 pictures"),
        (ImageReport(1, {"RGB": 1}, 3), "1 picture: 1 RGB"),
        (ImageReport(2, {"RGB": 1, "grey": 1}, 3, sampled=True), "2 pictures looked at: 1 RGB, 1 grey"),
        (
            ImageReport(1200, {"RGB": 1200}, 1, 1100, {"to 1 channel": 1100}),
            "1,200 pictures: 1,200 RGB; 1,100 will be converted to 1 channel",
        ),
        (
            ImageReport(3, {"RGB": 3}, 1, 3, {"to 1 channel": 3, "from GIF": 1}, 1, {"is empty": 1}),
            "3 pictures: 3 RGB; 3 will be converted: 3 to 1 channel, 1 from GIF; "
            "1 cannot be used: 1 is empty",
        ),
    ],
)
def test_a_report_is_a_sentence(report: ImageReport, summary: str) -> None:
    assert report.summary == summary


def test_reports_on_several_fields_are_one() -> None:
    first = ImageReport(3, {"RGB": 3}, 3, 1, {"from GIF": 1}, 1, {"is empty": 1})
    second = ImageReport(4, {"grey": 4, "RGB": 3}, 3, 2, {"from WebP": 2}, 2, {"is empty": 2}, sampled=True)
    assert merged([]) is None
    assert merged([first]) is first
    assert merged([first, second]) == ImageReport(
        7, {"RGB": 6, "grey": 4}, 3, 3, {"from WebP": 2, "from GIF": 1}, 3, {"is empty": 3}, sampled=True
    )
    other = merged([first, ImageReport(1, {"grey": 1}, 1)])
    assert other is not None
    assert (other.channels, other.sampled) == (None, False)


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
