"""Token ids of a text, by whole words and by pieces of words as BERT has them."""

from __future__ import annotations

import pytest

from tpuctl.data.tokens import tokenizing as module
from tpuctl.data.tokens.tokenizing import TokenEncoder
from tpuctl.data.tokens.vocabulary import Vocabulary

PIECES = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "a", "##ff", "able", "##a", "!")
)
WORDS = Vocabulary(("[PAD]", "[UNK]", "cat", "dog"))


@pytest.mark.parametrize(
    ("text", "length", "ids"),
    [
        ("unaffable", 5, [2, 4, 5, 6, 3]),
        ("Unaffable!", 6, [2, 4, 5, 6, 11, 3]),
        ("unaffable able", 5, [2, 4, 5, 6, 3]),
        ("able able", 8, [2, 9, 9, 3, 0, 0, 0, 0]),
        ("unx able", 4, [2, 1, 9, 3]),
        ("aa", 5, [2, 7, 10, 3, 0]),
        ("", 3, [2, 3, 0]),
        ("able", 3, [2, 9, 3]),
        ("a" * 100, 5, [2, 7, 10, 10, 3]),
        ("a" * 101, 5, [2, 1, 3, 0, 0]),
    ],
)
def test_pieces_are_the_longest_ones_between_a_start_and_an_end(
    text: str, length: int, ids: list[int]
) -> None:
    encoder = TokenEncoder("wordpiece", PIECES, length)
    assert encoder(text).tolist() == ids
    assert encoder(text).tolist() == ids, "of what is cached"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("cat dog", [2, 3, 0]),
        ("Cat, DOG", [2, 1, 3]),
        ("cat cat dog dog", [2, 2, 3]),
        ("", [0, 0, 0]),
        ("d" * 1000 + " dog", [1, 3, 0]),
    ],
)
def test_words_are_whole_or_unknown(text: str, ids: list[int]) -> None:
    assert TokenEncoder("words", WORDS, 3)(text).tolist() == ids


def test_the_ids_of_no_more_words_are_cached_and_of_none_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CACHED", 3)
    encoder = TokenEncoder("words", WORDS, 3)
    encoder("a" * 101 + " " + "b" * 100)
    assert list(encoder._of_word) == ["b" * 100]
    for word in ("cat", "dog", "bird"):
        encoder(word)
    assert list(encoder._of_word) == ["b" * 100, "cat", "dog"]
    assert encoder("bird dog").tolist() == [1, 3, 0]
