"""Defines a vocabulary: the id of each token, and its file, one token a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from tpuctl.data.files.listing import unreadable
from tpuctl.data.options import TokenKind
from tpuctl.errors import UsageError

FILE = "vocabulary.txt"
"""Its name in a dataset."""
PAD, UNKNOWN, START, END, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL: dict[TokenKind, tuple[str, ...]] = {
    "words": (PAD, UNKNOWN),
    "wordpiece": (PAD, UNKNOWN, START, END, MASK),
}
"""Tokens that stand for no text: the first ones of every vocabulary that tpuctl learns."""
NEEDED: dict[TokenKind, tuple[str, ...]] = {
    "words": (PAD, UNKNOWN),
    "wordpiece": (PAD, UNKNOWN, START, END),
}
"""Those that a user's vocabulary must have, at any place; the padding is the first."""
MOST = 1_000_000
"""Entries that a vocabulary may have."""
_LARGEST = 64 << 20


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids, from 0 on; may be pickled."""

    tokens: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @property
    def cased(self) -> bool:
        """Whether any token has a capital letter, but for those in brackets: then texts keep theirs."""
        return any(
            token != token.lower() and not (token[0] == "[" and token[-1] == "]") for token in self.tokens
        )

    @property
    def content(self) -> bytes:
        """The file: UTF-8, one token a line."""
        return "".join(f"{token}\n" for token in self.tokens).encode()

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal, of the file."""
        return sha256(self.content).hexdigest()

    def text(self, ids: Sequence[int]) -> str:
        """Return tokens as people read them: pieces joined to words, without the padding."""
        padding = self.ids[PAD]
        tokens = [self.tokens[id_] if 0 <= id_ < len(self) else UNKNOWN for id_ in ids if id_ != padding]
        return " ".join(tokens).replace(" ##", "")


def read_vocabulary(path: Path, kind: TokenKind) -> Vocabulary:
    """Return the vocabulary in a file, as the presets of BERT have it (`vocab.txt`); raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise unreadable(str(path), error) from error
    if len(data) > _LARGEST:
        raise _wrong(path, "is larger than 67.1 MB, which is no vocabulary")
    return parse_vocabulary(data, kind, path)


def parse_vocabulary(data: bytes, kind: TokenKind, path: Path) -> Vocabulary:
    """Return the vocabulary that `data` holds; raises UsageError that names `path` and the line."""
    try:
        lines = data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _wrong(path, "is not UTF-8 text", line=data.count(b"\n", 0, error.start) + 1) from error
    tokens = tuple(line.removesuffix("\r") for line in lines)
    lines_of: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if not token:
            raise _wrong(path, "has no token", line=line)
        if token in lines_of:
            raise _wrong(path, f"has the token '{token}' again, of line {lines_of[token]}", line=line)
        lines_of[token] = line
    if missing := [token for token in NEEDED[kind] if token not in lines_of]:
        raise _wrong(path, f"lacks {' and '.join(missing)}")
    if tokens[0] != PAD:
        raise _wrong(path, f"has the token '{tokens[0]}', and the first is {PAD}: the id 0 pads", line=1)
    if len(tokens) > MOST:
        raise _wrong(path, f"has {len(tokens)} tokens, and at most {MOST} can be used")
    return Vocabulary(tokens)


def _wrong(path: Path, why: str, *, line: int = 0) -> UsageError:
    where = f"Line {line} of the vocabulary '{path}'" if line else f"The vocabulary '{path}'"
    return UsageError(
        f"{where} {why}.",
        hint="One token a line, as in the vocab.txt of BERT's presets; or give a number, to learn one.",
        file=str(path),
        line=line,
    )
