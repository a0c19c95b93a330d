"""Defines --tokens and its options, and describes a dataset's token ids."""

from __future__ import annotations

import click

from tpuctl.client.datasets import requests
from tpuctl.data.options import TokenKind, TokenOptions

TOKEN_OPTIONS = (
    click.option(
        "--tokens",
        type=click.Choice(["words", "wordpiece"]),
        help="Replace text by token ids: of complete words, or of word pieces as BERT does.",
    ),
    click.option(
        "--vocabulary",
        help="Size of the vocabulary to build from the training split, or a vocabulary file. "
        f"[default: {requests.ENTRIES}]",
    ),
    click.option(
        "--length", type=int, help=f"Number of token ids of each record. [default: {requests.LENGTH}]"
    ),
    click.option("--text", help="Column with the text, if there are several."),
)


def token_options(
    kind: TokenKind | None, vocabulary: str | None, length: int | None, text: str | None
) -> requests.Tokens:
    """Return the typed token options, and the tokens of a vocabulary file; raises UsageError."""
    is_size = vocabulary is not None and vocabulary.isascii() and vocabulary.isdigit()
    return requests.token_options(kind, int(vocabulary or 0) if is_size else vocabulary, length, text)


def describe_tokens(options: TokenOptions) -> str:
    """Return in a line how the text of a dataset became ids."""
    unit = "words" if options.kind == "words" else "word pieces"
    size = options.vocabulary_size
    origin = "from a file" if size is None else "from train"
    short = f" ({size:,} requested)" if size is not None and options.entries < size else ""
    vocabulary = f"{options.entries:,} entries {origin}{short}"
    return f"{options.length} ids a record, {unit} of '{options.text}'; vocabulary: {vocabulary}"
