"""Vocabularies: counted, learnt, given, and the ids that texts become by them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuctl.data.tokens.tokenizing import TokenEncoder
from tpuctl.data.tokens.vocabulary import Vocabulary, read_vocabulary
from tpuctl.data.tokens.word_counts import WordCounts
from tpuctl.data.tokens.word_pieces import learn_pieces
from tpuctl.errors import UsageError

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LOW = [("low", 5), ("lowest", 2), ("newer", 6), ("wider", 3)]
"""The words of the paper's own example."""


class TestCounts:
    def test_the_most_frequent_come_first_and_then_the_alphabet(self) -> None:
        counts = WordCounts()
        counts.add(["b", "a", "c"])
        counts.add(["c", "x" * 101])
        assert counts.by_frequency() == [("c", 2), ("a", 1), ("b", 1)]

    def test_of_too_many_words_the_rarest_go(self) -> None:
        counts = WordCounts(most=100)
        for number in range(1000):
            counts.add([f"rare{number}", "often", f"some{number % 5}"])
        frequencies = dict(counts.by_frequency())
        assert len(frequencies) <= 100
        assert frequencies["often"] == 1000
        assert {frequencies[f"some{number}"] for number in range(5)} == {200}


class TestPieces:
    def test_the_pairs_that_occur_most_are_joined_first_and_ties_by_their_characters(self) -> None:
        pieces = learn_pieces(LOW, 30)
        letters = ["l", "n", "w", *(f"##{character}" for character in "deiorstw")]
        assert pieces[: len(letters)] == letters
        assert pieces[len(letters) : len(letters) + 6] == ["##er", "##ow", "low", "##ew", "##ewer", "newer"]

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=8), st.integers(1, 9)), max_size=12))
    def test_it_finds_what_counting_anew_after_each_step_finds(self, words: list[tuple[str, int]]) -> None:
        counted = sorted(dict(words).items(), key=lambda item: (-item[1], item[0]))
        pieces = learn_pieces(counted, 60)
        assert pieces == learn_slowly(counted, 60)
        assert len(set(pieces)) == len(pieces)

    def test_words_with_rare_characters_have_no_pieces(self) -> None:
        many = [(chr(0x4E00 + number), 1001 - number) for number in range(1001)]
        assert len(learn_pieces(many, 5000)) == 1000

    def test_too_small_a_number_names_how_many_there_must_be(self) -> None:
        with pytest.raises(UsageError, match="alone are 11 entries, and there is room for 10"):
            learn_pieces(LOW, 10)

    def test_room_for_the_characters_alone_is_enough(self) -> None:
        assert len(learn_pieces(LOW, 11)) == 11


def learn_slowly(words: list[tuple[str, int]], most: int) -> list[str]:
    """What `learn_pieces` does, without any bookkeeping."""
    split = {word: [word[0], *(f"##{character}" for character in word[1:])] for word, _ in words}
    vocabulary = sorted(
        {piece for pieces in split.values() for piece in pieces}, key=lambda piece: (len(piece) > 1, piece)
    )
    while len(vocabulary) < most:
        pairs: dict[tuple[str, str], int] = {}
        for word, count in words:
            for pair in pairwise(split[word]):
                pairs[pair] = pairs.get(pair, 0) + count
        if not pairs:
            break
        first, second = min(pairs, key=lambda pair: (-pairs[pair], pair))
        joined = first + second[2:]
        if joined not in vocabulary:
            vocabulary.append(joined)
        for word, pieces in split.items():
            place = 0
            while place < len(pieces) - 1:
                if (pieces[place], pieces[place + 1]) == (first, second):
                    pieces[place : place + 2] = [joined]
                place += 1
            split[word] = pieces
    return vocabulary


class TestIds:
    PIECES = Vocabulary((*BERT, "un", "##aff", "##able", "##ord", "a", ",", "zoe"))

    def ids(self, text: str, length: int = 8) -> list[int]:
        return TokenEncoder("wordpiece", self.PIECES, length)(text).tolist()

    def test_pieces_stand_between_the_ends_and_the_rest_is_padding(self) -> None:
        assert self.ids("Unaffable, Zoë") == [2, 5, 6, 7, 10, 11, 3, 0]

    def test_a_long_text_is_cut_before_the_end_token(self) -> None:
        assert self.ids("a a unaffable", length=5) == [2, 9, 9, 5, 3]

    def test_a_word_with_a_rest_that_no_piece_fits_is_unknown_as_a_whole(self) -> None:
        assert self.ids("unx affable a [CLS]") == [2, 1, 1, 9, 1, 1, 1, 3]
        assert self.ids("a" * 101) == [2, 1, 3, 0, 0, 0, 0, 0]

    def test_an_empty_text_is_padding(self) -> None:
        assert self.ids("") == [2, 3, 0, 0, 0, 0, 0, 0]
        assert not TokenEncoder("words", Vocabulary(("[PAD]", "[UNK]", "a")), 3)("").any()

    def test_whole_words_have_no_ends(self) -> None:
        vector = TokenEncoder("words", Vocabulary(("[PAD]", "[UNK]", "cat", "the")), 4)("The cat sat")
        assert (vector.dtype, vector.tolist()) == (np.int64, [3, 2, 1, 0])

    def test_capitals_in_the_vocabulary_keep_those_of_the_text(self) -> None:
        cased = Vocabulary((*BERT, "Cat", "cat", "Zo\u00eb"))
        assert cased.cased
        assert not self.PIECES.cased
        assert TokenEncoder("wordpiece", cased, 6)("Cat cat Zo\u00eb CAT").tolist() == [2, 5, 6, 7, 1, 3]

    def test_they_can_be_read_back(self) -> None:
        assert self.PIECES.text(self.ids("Unaffable, Zoë")) == "[CLS] unaffable , zoe [SEP]"
        assert self.PIECES.text([99]) == "[UNK]"


class TestFile:
    def write(self, folder: Path, *lines: str, end: str = "\n") -> Path:
        (folder / "vocab.txt").write_bytes("".join(f"{line}{end}" for line in lines).encode())
        return folder / "vocab.txt"

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_it_is_read_as_it_is_written(self, tmp_path: Path, end: str) -> None:
        tokens = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "größe", "##n", "\u2028")
        pieces = read_vocabulary(self.write(tmp_path, *tokens, end=end), "wordpiece")
        assert pieces.tokens == tokens
        assert TokenEncoder("wordpiece", pieces, 5)("große").tolist() == [3, 2, 4, 0, 0]
        assert pieces.content.decode().split("\n") == [*tokens, ""]

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (("[PAD]", "[UNK]"), r"The vocabulary '.*vocab.txt' lacks \[CLS\] and \[SEP\]"),
            (("a", *BERT), r"Line 1 of the vocabulary '.*' has the token 'a', and the first is \[PAD\]"),
            ((*BERT, "a", "b", "a"), "Line 8 of the vocabulary '.*' has the token 'a' again, of line 6"),
            ((*BERT, "", "b"), "Line 6 of the vocabulary '.*' has no token"),
        ],
    )
    def test_what_is_wrong_with_it_is_named(
        self, tmp_path: Path, lines: tuple[str, ...], message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            read_vocabulary(self.write(tmp_path, *lines), "wordpiece")

    def test_other_bytes_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
        with pytest.raises(UsageError, match=r"Line 2 of the vocabulary '.*' is not UTF-8"):
            read_vocabulary(tmp_path / "vocab.txt", "words")
