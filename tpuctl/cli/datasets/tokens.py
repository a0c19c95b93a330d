"""--tokens and what belongs to it: what was typed, and how a dataset's token ids look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuctl.data.options import TokenOptions
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.tokens.vocabulary import Vocabulary

_ENTRIES, _LENGTH = "10000", 128
TOKEN_OPTIONS = (
    click.option(
        "--tokens",
        type=click.Choice(["words", "wordpiece"]),
        help="Make ids of the text: of whole words, or of word pieces as BERT does.",
    ),
    click.option(
        "--vocabulary",
        help="Entries of a vocabulary to be made from the training split, or a file with a token a line. "
        f"[default: {_ENTRIES}]",
    ),
    click.option("--length", type=int, help=f"Token ids of each record. [default: {_LENGTH}]"),
    click.option("--text", help="Column that holds the text, where there are several."),
)


def tokens(asked: Mapping[str, Any]) -> tuple[TokenOptions | None, Vocabulary | None]:
    """Return what was typed of tokens, and the vocabulary if a file was given; raises UsageError."""
    kind = asked["tokens"]
    if kind is None:
        for name in ("vocabulary", "length", "text"):
            if asked[name] is not None:
                raise UsageError(
                    f"--{name} goes with --tokens, which says what to make of the text.",
                    hint="Add --tokens words or --tokens wordpiece.",
                )
        return None, None
    said = _ENTRIES if asked["vocabulary"] is None else asked["vocabulary"]
    made = TokenOptions(
        kind, _LENGTH if asked["length"] is None else asked["length"], text=asked["text"] or ""
    )
    if said.isascii() and said.isdigit():
        return TokenOptions(kind, made.length, int(said), made.text), None
    from tpuctl.data.tokens.vocabulary import read_vocabulary  # noqa: PLC0415  NumPy: not for the other commands

    return made, read_vocabulary(Path(said), kind)


def described(made: TokenOptions) -> str:
    """Return in a line how the text of a dataset became ids."""
    unit = "words" if made.kind == "words" else "word pieces"
    origin = "from a file" if made.vocabulary_size is None else "made from train"
    short = f", {made.vocabulary_size:,} asked for" if made.entries < (made.vocabulary_size or 0) else ""
    vocabulary = f"{made.entries:,} {origin}{short}"
    return f"{made.length} ids a record, {unit} of '{made.text}'; vocabulary: {vocabulary}"
