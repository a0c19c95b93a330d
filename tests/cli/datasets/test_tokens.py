"""`--tokens` as a user types it, and what the other data commands show of token ids."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]

ROWS = """text,stars,label
great film,5,good
bad film,1,bad
"great, great cast",4,good
Zo\u00eb was bad,2,bad
"""
OPTIONS = ("--tokens", "words", "--vocabulary", "6", "--length", "4")


@pytest.fixture
def reviews(home: Path) -> str:
    Path("reviews.csv").write_text(ROWS)
    return "reviews.csv"


@pytest.fixture
def uploaded(tpuctl: Tpuctl, simulator: RunningSimulator, reviews: str) -> CommandResult:
    result = tpuctl("data", "upload", "reviews", reviews, *OPTIONS)
    assert result.code == 0, result.err
    return result


def test_another_format_beside_the_chosen_one_is_told(tpuctl: Tpuctl, home: Path) -> None:
    Path("rows").mkdir()
    Path("rows/a.csv").write_text(ROWS)
    Path("rows/b.jsonl").write_text('{"text": "x"}\n')
    for options in ((), OPTIONS):
        told = tpuctl("data", "plan", "rows", "rows", *options).err
        line = "The source is read as jsonl; files of csv are left out: --format csv reads those.\n"
        assert line in told
    assert tpuctl("data", "plan", "rows", "rows", "--json").json["also"] == ["csv"]


def test_a_plan_says_what_the_ids_are_made_of(tpuctl: Tpuctl, reviews: str) -> None:
    result = tpuctl("data", "plan", "reviews", reviews, *OPTIONS)
    assert "tokens: 4 ids a record, words of 'text'; vocabulary: 6 entries from train" in result.err
    result = tpuctl("data", "plan", "reviews", reviews, "--tokens", "wordpiece")
    assert "128 ids a record, word pieces of 'text'; vocabulary: " in result.err
    assert "entries from train (10,000 requested)" in result.err
    plan = tpuctl("data", "plan", "reviews", reviews, *OPTIONS, "--json").json
    assert plan["tokens"] == {"kind": "words", "length": 4, "wanted": 6, "text": "text", "entries": 6}


def test_the_dataset_is_described_and_its_ids_are_shown_as_words(
    tpuctl: Tpuctl, uploaded: CommandResult
) -> None:
    result = tpuctl("data", "describe", "reviews")
    assert "tokens     4 ids a record, words of 'text'; vocabulary: 6 entries from train" in result.out
    assert "tokens  int64, 4" in result.out
    lines = tpuctl("data", "head", "reviews").out.splitlines()
    assert lines[0].split() == ["TOKENS", "STARS", "LABEL"]
    assert sorted(" ".join(line.split()) for line in lines[1:]) == [
        "[UNK] [UNK] bad 2 0 (bad)",
        "bad film 1 0 (bad)",
        "great , great [UNK] 4 1 (good)",
        "great film 5 1 (good)",
    ]
    head = tpuctl("data", "head", "reviews", "-n", "1", "--json").json
    assert len(head["examples"][0]["tokens"]) == 4
    assert head["texts"][0]
    assert tpuctl("data", "verify", "reviews", "--deep").code == 0


def test_run_again_it_is_there_and_with_another_vocabulary_it_is_another(
    tpuctl: Tpuctl, uploaded: CommandResult, reviews: str
) -> None:
    assert "was there already" in tpuctl("data", "upload", "reviews", reviews, *OPTIONS).out
    Path("vocab.txt").write_text("[PAD]\n[UNK]\nfilm\n")
    from_file = ("--tokens", "words", "--vocabulary", "vocab.txt", "--length", "4")
    result = tpuctl("data", "upload", "reviews", reviews, *from_file)
    assert (result.code, "exists with other content" in result.err) == (4, True)
    assert tpuctl("data", "upload", "reviews", reviews, *from_file, "--version", "1.0.1").code == 0
    assert "vocabulary: 3 entries from a file" in tpuctl("data", "describe", "reviews").out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--length", "3"), "--length needs --tokens"),
        (("--vocabulary", "3"), "--vocabulary needs --tokens"),
        (("--text", "text"), "--text needs --tokens"),
        (("--tokens", "letters"), "'letters' is not one of 'words', 'wordpiece'"),
        (("--tokens", "words", "--vocabulary", "no.txt"), "Cannot read 'no.txt'"),
        (("--tokens", "words", "--vocabulary", "reviews.csv"), "The vocabulary 'reviews.csv' lacks"),
        (("--tokens", "words", "--vocabulary", "0"), "A vocabulary cannot have 0 entries"),
        (("--tokens", "words", "--text", "stars"), "the field 'stars' is no text"),
        (("--tokens", "wordpiece", "--vocabulary", "9"), "The characters of the texts alone are"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tpuctl: Tpuctl, reviews: str, options: tuple[str, ...], message: str
) -> None:
    result = tpuctl("data", "plan", "reviews", reviews, *options)
    assert (result.code, message in result.err) == (2, True), result.err
    assert "tensorflow" not in sys.modules
