"""Defines --tokens and its options, and describes a dataset's token ids."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.data.options import TokenKind, TokenOptions
from tpuctl.errors import UsageError

_ENTRIES, _LENGTH = "10000", 128
TOKEN_OPTIONS = (
    click.option(
        "--tokens",
        type=click.Choice(["words", "wordpiece"]),
        help="Replace text by token ids: of complete words, or of word pieces as BERT does.",
    ),
    click.option(
        "--vocabulary",
        help="Size of the vocabulary to build from the training split, or a vocabulary file. "
        f"[default: {_ENTRIES}]",
    ),
    click.option("--length", type=int, help=f"Number of token ids of each record. [default: {_LENGTH}]"),
    click.option("--text", help="Column with the text, if there are several."),
)


def token_options(
    kind: TokenKind | None, vocabulary: str | None, length: int | None, text: str | None
) -> tuple[TokenOptions | None, tuple[str, ...] | None]:
    """Return the typed token options, and the tokens of a vocabulary file; raises UsageError."""
    if kind is None:
        _require_none(vocabulary=vocabulary, length=length, text=text)
        return None, None
    length = _LENGTH if length is None else length
    size_or_file = _ENTRIES if vocabulary is None else vocabulary
    if size_or_file.isascii() and size_or_file.isdigit():
        return TokenOptions(kind, length, int(size_or_file), text or ""), None
    from tpuctl.data.tokens.vocabulary import read_vocabulary  # noqa: PLC0415  NumPy: not for the other commands

    tokens = read_vocabulary(Path(size_or_file), kind).tokens
    return TokenOptions(kind, length, text=text or ""), tokens


def describe_tokens(options: TokenOptions) -> str:
    """Return in a line how the text of a dataset became ids."""
    unit = "words" if options.kind == "words" else "word pieces"
    size = options.vocabulary_size
    origin = "from a file" if size is None else "from train"
    short = f" ({size:,} requested)" if size is not None and options.entries < size else ""
    vocabulary = f"{options.entries:,} entries {origin}{short}"
    return f"{options.length} ids a record, {unit} of '{options.text}'; vocabulary: {vocabulary}"


def _require_none(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"--{name} needs --tokens, which selects words or word pieces.",
                hint="Add --tokens words or --tokens wordpiece.",
            )
