"""Vocabularies as files, and as what ids are read by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.data.tokens import TokenEncoder, Vocabulary, read_vocabulary
from tpuctl.errors import UsageError

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


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
