"""Which tags and notes people may give a run."""

from __future__ import annotations

import pytest

from tpuctl.errors import UsageError
from tpuctl.upkeep import LONGEST_NOTE, LONGEST_VALUE, Notes, TagChange, TagCondition, check_note


def test_words_set_and_remove_tags_as_kubectl_takes_them() -> None:
    change = TagChange.parse(["keep", "team=vision", "x=a=b-", "old-"])
    assert (change.tags, change.removed) == ({"keep": "", "team": "vision", "x": "a=b-"}, {"old"})


@pytest.mark.parametrize(
    "words",
    [
        ["=x"], [""], ["-"], ["a b"], ["é=1"], ["a\n=1"], ["k" * 64], [".x"], ["x."], ["a=1", "a=2"],
        ["a", "a-"], ["a=\x1b[2J"], ["a=\u202e"], ["a=\udc9b"], ["a=" + "v" * (LONGEST_VALUE + 1)],
        ["../../datasets/x/"],
    ],
)  # fmt: skip
def test_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        TagChange.parse(words)
    assert refusal.value.hint


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "a\x1b]0;x\x07", "\u202e", "n" * (LONGEST_NOTE + 1)])
def test_a_note_is_one_printable_line(text: str) -> None:
    with pytest.raises(UsageError):
        check_note(text)
    assert check_note(" fine ") == "fine"


@pytest.mark.parametrize(
    ("text", "holds"),
    [("team", True), ("team=vision", True), ("team=", False), ("keep", True), ("keep=", True), ("x", False)],
)
def test_a_condition_is_a_key_with_one_value_or_any(text: str, holds: bool) -> None:
    assert TagCondition.parse(text).holds({"team": "vision", "keep": ""}) is holds


def test_tags_in_one_line() -> None:
    assert Notes("r1", {"team": "vision", "keep": ""}).labels == "keep, team=vision"
