"""Words as BERT has them; what is expected was made with Hugging Face's `tokenizers` 0.23, BertNormalizer."""

from __future__ import annotations

from unicodedata import category

import pytest

from tpuctl.data.tokens.basic_tokenizer import WordSplitter


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
def test_texts_are_parted_as_by_bert(text: str, words: str) -> None:
    assert WordSplitter(cased=False)(text) == words.split()


def test_cased_words_keep_capitals_and_accents() -> None:
    assert WordSplitter(cased=True)("Zoë's CAFE\u0301") == ["Zoë", "'", "s", "CAFE\u0301"]


IDEOGRAPHS = "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
"""As BERT's tokenization.py lists them, `_is_chinese_char`."""


def test_the_ideographs_are_those_of_bert() -> None:
    alone = WordSplitter(cased=True)
    found = [code for code in range(0x3000, 0x30000) if len(alone(f"a{chr(code)}b")) == 3]
    blocks = [
        range(int(first, 16), int(last, 16) + 1)
        for first, last in (block.split("-") for block in IDEOGRAPHS.split())
    ]
    letters = [code for code in found if category(chr(code))[0] != "P"]
    assert letters == [code for block in blocks for code in block]
