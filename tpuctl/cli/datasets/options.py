"""Defines the arguments and options that data commands share, and makes an UploadRequest of them.

- Defines --tokens and its options, and describes a dataset's token ids.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import click

from tpuctl.cli.session import Command
from tpuctl.cli.value_types import ACCELERATOR, SOURCE
from tpuctl.client.datasets import requests
from tpuctl.data.options import Channels, TokenKind, TokenOptions
from tpuctl.data.output.manifest import FileFormat
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.request import UploadRequest

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


AT_LEAST_ONE = click.IntRange(min=1)
_MOST_PIXELS = 1 << 26
"""Pixels that images are resized to, at most."""
CHANNELS: dict[str, Channels | None] = {"1": 1, "3": 3, "4": 4, "keep": "keep"}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


class RefType(click.ParamType[DatasetRef]):
    """Converts NAME or NAME/VERSION."""

    name = "dataset"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> DatasetRef:
        return DatasetRef.parse(value)


ref_argument = click.argument("ref", metavar="NAME", type=RefType())
"""NAME or NAME/VERSION of a dataset in the bucket."""

SOURCE_OPTIONS = (
    click.argument("name"),
    click.argument("source", type=SOURCE),
    click.option("--version", default="1.0.0", show_default=True, help="Version of the dataset."),
    click.option(
        "--split", "splits", help="Share of each split, for a source without splits: train=0.8,test=0.2"
    ),
    click.option(
        "--for",
        "accelerator",
        type=ACCELERATOR,
        help="Accelerator type that will read it, such as v3-32; makes the number of shards a multiple of "
        "its hosts.",
    ),
    click.option("--hosts", type=AT_LEAST_ONE, help="Like --for, but give the number of hosts."),
    click.option("--shards", type=AT_LEAST_ONE, help="Number of shards of each split."),
    click.option(
        "--shard-size", default="100MB", show_default=True, help="Target size of a shard, 67.1 MB to 1.07 GB."
    ),
    click.option("--seed", default=0, show_default=True, help="Random seed of the shuffle."),
    click.option("--resize", metavar="HEIGHTxWIDTH", help="Resize images; 32 is 32x32. JPEG at quality 95."),
    click.option(
        "--channels",
        type=click.Choice(CHANNELS),
        help="Channels of all images: 1, 3 or 4, or keep those of each. [default: what most images have]",
    ),
    click.option("--label", default="", help="Column with the class."),
    click.option(
        "--type",
        "types",
        multiple=True,
        help="Type of a column: COLUMN=int|float|bool|text|bytes|label; labels in metadata.csv.",
    ),
    *TOKEN_OPTIONS,
    click.option(
        "--format", "kind", help="Format of the source, if file names do not show it: images, csv, ..."
    ),
    click.option(
        "--file-format",
        type=click.Choice(get_args(FileFormat)),
        default="tfrecord",
        show_default=True,
        help="Format of the shards; arrayrecord has random access, as Grain reads it.",
    ),
    click.option("--skip-bad", is_flag=True, help="Skip bad records, and list them in the manifest."),
)


def source_options(command: Command) -> Command:
    """Give a command the source and its options, and pass it the UploadRequest that they make."""

    @functools.wraps(command)
    def wrapper(*args: Any, **typed: Any) -> Any:
        request = upload_request(**{name: typed.pop(name) for name in _TYPED})
        return command(*args, request=request, **typed)

    for option in reversed(SOURCE_OPTIONS):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the wrapper stands for the command


def upload_request(
    *, name: str, source: str | Path, shard_size: str, resize: str | None, channels: str | None,
    types: Iterable[str], tokens: TokenKind | None, vocabulary: str | None, length: int | None,
    text: str | None, **same: Any,
) -> UploadRequest:  # fmt: skip
    """Return the typed options as a request; raises UsageError for one that cannot be read.

    `same` are those that the request takes as they are.
    """
    return requests.upload_request(
        name, source, shard_size=_bytes(shard_size), resize=_resize(resize),
        channels=CHANNELS[channels] if channels else None, types=_types(types),
        tokens=token_options(tokens, vocabulary, length, text), **same,
    )  # fmt: skip


_TYPED = (*inspect.signature(requests.upload_request).parameters, "vocabulary", "length", "text")


def _types(pairs: Iterable[str]) -> dict[str, str]:
    types: dict[str, str] = {}
    for pair in pairs:
        name, equals, kind = pair.rpartition("=")
        if not equals or not name or name in types:
            raise UsageError(f"Cannot read --type {pair}.", hint="Once for each column: --type age=float")
        types[name] = kind
    return types


def _resize(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})(?:[x×]([1-9]\d{0,4}))?", text.strip())
    if not match:
        raise UsageError(f"Cannot read --resize {text}.", hint="Height and width: --resize 224x224")
    height, width = int(match[1]), int(match[2] or match[1])
    if height * width > _MOST_PIXELS:
        hint = f"At most {_MOST_PIXELS / 1e6:.0f} megapixels; networks take less than one."
        raise UsageError(f"--resize {text} makes images of {height * width / 1e6:.0f} megapixels.", hint=hint)
    return height, width


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if not match:
        raise UsageError(f"Cannot read --shard-size {text}.", hint="For instance --shard-size 256MB")
    return int(float(match[1]) * _UNITS[match[2] or ""])
