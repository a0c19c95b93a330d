"""How `data head` shows the values of a field in one cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.source_trees import write_image
from tests.running_simulator import CommandResult

Tpuctl = Callable[..., CommandResult]


def cells(tpuctl: Tpuctl, record: dict[str, object]) -> dict[str, str]:
    """Upload a dataset of one record and return its cells by their columns."""
    Path("one.jsonl").write_text(json.dumps(record) + "\n")
    assert tpuctl("data", "upload", "one", "one.jsonl").code == 0
    header, row = tpuctl("data", "head", "one").out.splitlines()
    starts = [header.index(column) for column in header.split()]
    parts = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(header.split(), parts, strict=True))


@pytest.mark.usefixtures("simulator")
class TestCell:
    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (1, "1"),
            (8, "1 2 3 4 5 6 7 8"),
            (9, "1 2 3 4 5 6 7 8 ... (9 values)"),
            (20, "1 2 3 4 5 6 7 8 ... (20 values)"),
        ],
    )
    def test_eight_values_are_shown_and_more_are_counted(self, tpuctl: Tpuctl, count: int, text: str) -> None:
        assert cells(tpuctl, {"x": list(range(1, count + 1)), "y": 0})["X"] == text

    @pytest.mark.parametrize(("length", "ending"), [(60, "x"), (61, "...")])
    def test_a_text_is_cut_at_sixty_characters(self, tpuctl: Tpuctl, length: int, ending: str) -> None:
        text = cells(tpuctl, {"text": "x" * length, "y": 0})["TEXT"]
        assert (len(text), text.endswith(ending)) == (60, True)

    def test_line_ends_are_spaces_and_floats_have_six_digits(self, tpuctl: Tpuctl) -> None:
        shown = cells(tpuctl, {"text": "a\n\tb", "rate": 0.123456789, "count": 1234567})
        assert (shown["TEXT"], shown["RATE"], shown["COUNT"]) == ("a b", "0.123457", "1234567")


@pytest.mark.usefixtures("simulator")
class TestSheet:
    def test_characters_that_its_captions_lack_are_named(self, tpuctl: Tpuctl, home: Path) -> None:
        for name in ("кот", "dog"):
            write_image(Path("pictures") / name / "0.png")
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        result = tpuctl("data", "head", "pets", "--image", "sheet.png")
        assert result.err.splitlines()[-2:] == [
            "2 images in sheet.png",
            "Its captions show ? for characters that are not ASCII: кот",
        ]
        assert "(кот)" in result.out

    def test_captions_that_can_be_drawn_need_no_word(self, tpuctl: Tpuctl, home: Path) -> None:
        write_image(Path("pictures/cat/0.png"))
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        result = tpuctl("data", "head", "pets", "--image", "sheet.png")
        assert result.err.splitlines()[-1] == "1 image in sheet.png"
