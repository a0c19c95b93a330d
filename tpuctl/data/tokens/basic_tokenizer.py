"""Splits texts into words as BERT's own tokenizer does, before it looks them up in its vocabulary.

Devlin et al., "BERT" (2018), `BasicTokenizer`: control characters are removed, each punctuation mark and each
Chinese character is a word by itself, all other text is split at blanks. Uncased, letters are small and
without accents.
"""

from __future__ import annotations

from unicodedata import category, normalize

_SPACES = "\t\n\r"
_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
"""Code points of the ideographs, which are written without blanks between words."""
_ASCII_SYMBOLS = "$+<=>^`|~"
"""Punctuation in BERT, though not in Unicode."""


class WordSplitter:
    """Splits texts into words; may be used by several threads."""

    def __init__(self, *, cased: bool) -> None:
        """With `cased`, letters stay as they are: capital or small, with their accents."""
        self._cased = cased
        self._characters = _Characters(cased=cased)

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text in order."""
        if self._cased:
            return text.translate(self._characters).split()
        plain = text if text.isascii() else normalize("NFD", text)
        return plain.translate(self._characters).lower().split()


class _Characters(dict[int, str | None]):
    """The replacement of each character, computed at its first use."""

    def __init__(self, *, cased: bool) -> None:
        super().__init__()
        self._removed = ("Cc", "Cf", "Co", "Cs") if cased else ("Cc", "Cf", "Co", "Cs", "Mn")

    def __missing__(self, code: int) -> str | None:
        self[code] = replacement = self._replacement(chr(code))
        return replacement

    def _replacement(self, character: str) -> str | None:
        if character in _SPACES or (character.isspace() and category(character) != "Cc"):
            return " "
        if character == "\ufffd" or category(character) in self._removed:
            return None
        if category(character)[0] == "P" or character in _ASCII_SYMBOLS or _is_chinese(ord(character)):
            return f" {character} "
        return character


def _is_chinese(code: int) -> bool:
    return any(first <= code <= last for first, last in _CHINESE)
