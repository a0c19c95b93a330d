"""What changes of arguments mean, and which are refused because they could mean several things."""

from __future__ import annotations

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.record.comparison import changed, named_words

ARGUMENTS = ["--lr", "0.01", "--epochs=3", "--verbose", "--layers", "64", "32", "optimizer=sgd", "-j", "-2"]


@pytest.mark.parametrize(
    ("arguments", "changes", "result"),
    [
        (ARGUMENTS, [], ARGUMENTS),
        (["--lr", "0.01"], ["--lr", "0.1"], ["--lr", "0.1"]),
        (["--lr=0.01", "x"], ["--lr", "0.1"], ["--lr", "0.1", "x"]),
        (["--lr", "0.01", "x"], ["--lr=0.1"], ["--lr=0.1", "x"]),
        (["--lr=0.01"], ["--lr=0.1"], ["--lr=0.1"]),
        (["--layers", "64", "32"], ["--layers", "8", "4"], ["--layers", "8", "4"]),
        (["--lr", "0.01"], ["--verbose"], ["--lr", "0.01", "--verbose"]),
        (["--verbose", "--lr", "1"], ["--verbose"], ["--verbose", "--lr", "1"]),
        (["lr=1", "+a.b=2"], ["a.b=3", "c=4"], ["lr=1", "a.b=3", "c=4"]),
        (["-j", "-2"], ["-j", "-3"], ["-j", "-3"]),
        (["train", "--lr", "1"], ["--lr", "2"], ["train", "--lr", "2"]),
        ([], ["--lr", "0.1"], ["--lr", "0.1"]),
        (["--text", ""], ["--text", "a b"], ["--text", "a b"]),
        (["--x=a=b"], ["--x", "c"], ["--x", "c"]),
        (["--lr", "1"], ["--lr", "2", "--lr", "3"], ["--lr", "3"]),
    ],
)
def test_an_option_replaces_the_same_option_or_is_added(
    arguments: list[str], changes: list[str], result: list[str]
) -> None:
    assert changed(arguments, changes) == tuple(result)


@pytest.mark.parametrize(
    ("arguments", "changes", "reason"),
    [
        (["--lr", "1", "data.csv"], ["--lr", "2"], "--lr has 1 after it here, and 2 words in the run"),
        (["--lr=1"], ["--lr", "2", "3"], "--lr has 2 after it here, and 1 word in the run"),
        (["--fast"], ["--fast", "2"], "--fast has 1 after it here, and no word in the run"),
        (["--tag", "a", "--tag", "b"], ["--tag", "c"], "the run has --tag 2 times"),
        (["--lr", "1"], ["data.csv"], "'data.csv' has no option before it"),
    ],
)
def test_what_could_mean_several_things_is_refused(
    arguments: list[str], changes: list[str], reason: str
) -> None:
    with pytest.raises(UsageError, match="not clear") as refused:
        changed(arguments, changes)
    assert reason in refused.value.message
    assert "--all-arguments" in refused.value.hint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], {}),
        (["--lr", "0.1"], {"--lr": "0.1"}),
        (["--lr=0.1"], {"--lr": "0.1"}),
        (["lr=0.1"], {"lr": "0.1"}),
        (["--x=a=b"], {"--x": "a=b"}),
        (["--fast"], {"--fast": ""}),
        (["--layers", "64", "32"], {"--layers": "64 32"}),
        (["--text", "a b"], {"--text": "'a b'"}),
        (["train", "data", "--lr", "1"], {"word 1": "train", "word 2": "data", "--lr": "1"}),
        (["lr=1", "train"], {"lr": "1", "word 1": "train"}),
        (["--t", "a", "--t", "b", "--t", "c"], {"--t": "a", "--t (2)": "b", "--t (3)": "c"}),
        (["--lr=0.1", "x"], {"--lr": "0.1 x"}),
    ],
)
def test_options_are_named_with_their_values_and_words_with_their_places(
    arguments: list[str], named: dict[str, str]
) -> None:
    assert named_words(arguments) == named
