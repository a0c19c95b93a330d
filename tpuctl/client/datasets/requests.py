"""Makes the request of an upload of what a caller or a command line says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tpuctl import accelerators
from tpuctl.data.options import Channels, Options, TokenKind, TokenOptions
from tpuctl.data.output.manifest import FileFormat
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.request import UploadRequest

FIRST_VERSION = "1.0.0"
ENTRIES, LENGTH = 10_000, 128
"""Entries of a vocabulary, and token ids of a record, unless somebody says otherwise."""
Tokens = tuple[TokenOptions | None, tuple[str, ...] | None]
"""How text becomes ids, and the tokens of a vocabulary that was named."""
NO_TOKENS: Tokens = (None, None)


def upload_request(
    name: str, source: str | Path, *, version: str = FIRST_VERSION, splits: str | None = None,
    accelerator: str | None = None, hosts: int | None = None, shards: int | None = None,
    shard_size: int | None = None, seed: int = 0, resize: tuple[int, int] | None = None,
    channels: Channels | None = None, label: str = "", types: Mapping[str, str] | None = None,
    tokens: Tokens = NO_TOKENS, kind: str | None = None, skip_bad: bool = False,
    file_format: FileFormat = "tfrecord",
) -> UploadRequest:  # fmt: skip
    """Return the request; `splits` is `train=0.8,test=0.2`. Raises UsageError."""
    made_of_text, vocabulary = tokens
    return UploadRequest(
        source=str(source),
        ref=DatasetRef(name, version),
        kind=kind,
        options=Options(dict(types or {}), label, resize, made_of_text, channels),
        splits=splits,
        hosts=_hosts(accelerator, hosts),
        shards=shards,
        shard_size=shard_size,
        seed=seed,
        skip_bad=skip_bad,
        vocabulary=vocabulary,
        file_format=file_format,
    )


def token_options(
    kind: TokenKind | None,
    vocabulary: int | str | Path | Sequence[str] | None = None,
    length: int | None = None,
    text: str | None = None,
) -> Tokens:
    """Return how text becomes ids; `vocabulary` is its size, its file or its tokens. Raises UsageError."""
    if kind is None:
        _require_none(vocabulary=vocabulary, length=length, text=text)
        return NO_TOKENS
    length = LENGTH if length is None else length
    size_or_tokens = ENTRIES if vocabulary is None else vocabulary
    if isinstance(size_or_tokens, int):
        return TokenOptions(kind, length, size_or_tokens, text or ""), None
    if isinstance(size_or_tokens, (str, Path)):
        from tpuctl.data.tokens import read_vocabulary  # NumPy

        size_or_tokens = read_vocabulary(Path(size_or_tokens), kind).tokens
    return TokenOptions(kind, length, text=text or ""), tuple(size_or_tokens)


def _require_none(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"--{name} needs --tokens, which selects words or word pieces.",
                hint="Add --tokens words or --tokens wordpiece.",
            )


def _hosts(accelerator: str | None, hosts: int | None) -> int:
    if accelerator and hosts:
        raise UsageError("--for and --hosts both set the number of hosts.", hint="Give one of them.")
    return accelerators.known(accelerator).hosts or 1 if accelerator else hosts or 1
