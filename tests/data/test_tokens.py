"""Words as BERT has them, what is learnt of them, and the ids that texts become.

Vocabularies as files, and as what ids are read by.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unicodedata import category

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuctl.data import tokens as module
from tpuctl.data.tokens import (
    TokenEncoder,
    Vocabulary,
    WordCounts,
    WordSplitter,
    learn_pieces,
    read_vocabulary,
)
from tpuctl.errors import UsageError

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LOW = [("low", 5), ("lowest", 2), ("newer", 6), ("wider", 3)]
"""The words of the example of Sennrich, Haddow and Birch."""
IDEOGRAPHS = "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
"""As BERT's tokenization.py lists them, `_is_chinese_char`."""


class TestSplitting:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("The U.S. dollar, 1.15 pct!", "the u . s . dollar , 1 . 15 pct !"),
            ("don't stop-me_now $5 a^b", "don ' t stop - me _ now $ 5 a ^ b"),
            ("Zoë’s naïve CAFÉ — İstanbul", "zoe ’ s naive cafe — istanbul"),
            ("東京 2024年", "東 京 2024 年"),
            ("a\x00b\u200dc\ufffd\u00add\x0be\x1cf", "abcdef"),
            ("a\tb\nc\rd\u00a0e\u2028f", "a b c d e f"),
            ("½ € ² №5", "½ € ² №5"),
            ("", ""),
            (" \n ", ""),
        ],
    )
    def test_texts_are_parted_as_by_bert(self, text: str, words: str) -> None:
        """What is expected was made with Hugging Face's `tokenizers` 0.23, BertNormalizer."""
        assert WordSplitter(cased=False)(text) == words.split()

    def test_a_sigma_at_the_end_of_a_word_stays_one_as_in_bert(self) -> None:
        """In tokenization.py Python lowers the word; BertNormalizer lowers each character by itself."""
        assert WordSplitter(cased=False)("ΟΔΟΣ, ΣΟΦΟΣ") == ["οδος", ",", "σοφος"]

    def test_cased_words_keep_capitals_and_accents(self) -> None:
        assert WordSplitter(cased=True)("Zoë's CAFE\u0301") == ["Zoë", "'", "s", "CAFE\u0301"]

    def test_the_ideographs_are_those_of_bert(self) -> None:
        alone = WordSplitter(cased=True)
        found = [code for code in range(0x3000, 0x30000) if len(alone(f"a{chr(code)}b")) == 3]
        blocks = [
            range(int(first, 16), int(last, 16) + 1)
            for first, last in (block.split("-") for block in IDEOGRAPHS.split())
        ]
        letters = [code for code in found if category(chr(code))[0] != "P"]
        assert letters == [code for block in blocks for code in block]


class TestCounts:
    def test_the_most_frequent_come_first_and_the_same_by_their_characters(self) -> None:
        counts = WordCounts()
        counts.add(["b", "d", "c", "b", "x" * 101])
        counts.add([])
        counts.add(["c", "a", "b", "y" * 100])
        assert counts.by_frequency() == [("b", 3), ("c", 2), ("a", 1), ("d", 1), ("y" * 100, 1)]

    def test_only_beyond_the_bound_the_rarest_half_goes_and_is_counted_again_from_0(self) -> None:
        counts = WordCounts(most=4)
        counts.add(["a"] * 5 + ["b"] * 4 + ["c"] * 2 + ["d"])
        assert len(counts.by_frequency()) == 4
        counts.add(["e"])
        assert counts.by_frequency() == [("a", 5), ("b", 4)]
        counts.add(["c", "d"])
        assert counts.by_frequency() == [("a", 5), ("b", 4), ("c", 1), ("d", 1)]

    def test_frequent_words_among_many_rare_ones_are_counted_exactly(self) -> None:
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
    PIECES = Vocabulary(
        (*BERT, "un", "##aff", "##able", "##ord", "a", ",", "zoe", "##ff", "able", "##a", "!", "a" * 101)
    )
    WORDS = Vocabulary(("[PAD]", "[UNK]", "cat", "dog", "e" * 101))

    @pytest.mark.parametrize(
        ("text", "length", "ids"),
        [
            ("unaffable", 5, [2, 5, 6, 7, 3]),
            ("Unaffable!", 6, [2, 5, 6, 7, 15, 3]),
            ("Unaffable, Zoë", 8, [2, 5, 6, 7, 10, 11, 3, 0]),
            ("unaffable able", 5, [2, 5, 6, 7, 3]),
            ("a a unaffable", 5, [2, 9, 9, 5, 3]),
            ("able able", 8, [2, 13, 13, 3, 0, 0, 0, 0]),
            ("unx ffable a [CLS]", 8, [2, 1, 1, 9, 1, 1, 1, 3]),
            ("aa", 5, [2, 9, 14, 3, 0]),
            ("", 3, [2, 3, 0]),
            ("able", 3, [2, 13, 3]),
            ("a" * 100, 5, [2, 9, 14, 14, 3]),
            ("a" * 101, 5, [2, 1, 3, 0, 0]),
        ],
    )
    def test_pieces_are_the_longest_ones_between_a_start_and_an_end(
        self, text: str, length: int, ids: list[int]
    ) -> None:
        encoder = TokenEncoder("wordpiece", self.PIECES, length)
        assert encoder(text).tolist() == ids
        assert encoder(text).tolist() == ids, "of what is cached"

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("The cat sat", [1, 2, 1]),
            ("cat dog", [2, 3, 0]),
            ("Cat, DOG", [2, 1, 3]),
            ("cat cat dog dog", [2, 2, 3]),
            ("", [0, 0, 0]),
            ("d" * 1000 + " " + "e" * 101 + " dog", [1, 4, 3]),
        ],
    )
    def test_words_are_whole_or_unknown(self, text: str, ids: list[int]) -> None:
        vector = TokenEncoder("words", self.WORDS, 3)(text)
        assert (vector.dtype, vector.tolist()) == (np.int64, ids)

    def test_the_ids_of_no_more_words_are_cached_and_of_none_too_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_MOST_CACHED", 3)
        encoder = TokenEncoder("words", self.WORDS, 3)
        encoder("a" * 101 + " " + "b" * 100)
        assert list(encoder._of_word) == ["b" * 100]
        for word in ("cat", "dog", "bird"):
            encoder(word)
        assert list(encoder._of_word) == ["b" * 100, "cat", "dog"]
        assert encoder("bird dog").tolist() == [1, 3, 0]

    def test_capitals_in_the_vocabulary_keep_those_of_the_text(self) -> None:
        cased = Vocabulary((*BERT, "Cat", "cat", "Zo\u00eb"))
        assert cased.cased
        assert not self.PIECES.cased
        assert TokenEncoder("wordpiece", cased, 6)("Cat cat Zo\u00eb CAT").tolist() == [2, 5, 6, 7, 1, 3]


def test_ids_are_read_as_words_without_the_padding() -> None:
    pieces = Vocabulary((*BERT, "un", "##aff", "##able", ",", "zoe"))
    assert pieces.text([2, 5, 6, 7, 8, 9, 3, 0, 0]) == "[CLS] unaffable , zoe [SEP]"
    assert pieces.text([99]) == "[UNK]"


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
