"""Reads checkpoints of whole files, alone or with an index that names its parts.

A bucket shows an object once all of it was written, so that a file alone is complete. Of several, the index
is written after the parts: huggingface_hub/serialization/_torch.py, `save_torch_state_dict`;
keras/src/saving/saving_lib.py, `ShardedH5IOStore.close`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import msgspec

from tpuctl.bucket_objects.decoding import DecodeError, decode
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint, step_of
from tpuctl.flows.runs.checkpoints.listing import Listing

FORMATS = {
    # suffix: the library that writes such files
    ".keras": "Keras",
    ".weights.h5": "Keras",
    ".h5": "Keras",
    ".safetensors": "safetensors",
    ".pt": "PyTorch",
    ".pth": "PyTorch",
    ".ckpt": "PyTorch",
    ".bin": "PyTorch",
    ".msgpack": "Flax",
}
INDEXES = {
    # suffix of an index: the library
    ".safetensors.index.json": "safetensors",
    ".bin.index.json": "PyTorch",
    ".weights.json": "Keras",
}
LARGEST_INDEX = 64 << 20
"""Most bytes of an index: a line for each tensor of a model."""
MOST_TENSORS = 1_000_000
"""In an index: names of a few bytes each would fill the memory."""
_PART = re.compile(r"(?P<name>.+)-\d{5}-of-\d{5}(?P<suffix>\.safetensors|\.bin)")
"""A part by the names that Hugging Face's libraries give."""


class Index(msgspec.Struct, frozen=True):
    """What counts of an index."""

    weight_map: dict[str, str | list[str]]
    """The file, or files, of each tensor."""


def read_files(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints of whole files among some names; raises GoneError."""
    parts: set[str] = set()
    for name in names:
        if suffix := _suffix(name, INDEXES):
            checkpoint = _indexed(listing, name, suffix, names)
            parts.update(checkpoint.files)
            yield checkpoint
    without_index: dict[str, list[str]] = {}
    for name in names:
        suffix = _suffix(name, FORMATS)
        if name in parts or not suffix:
            continue
        if part := _PART.fullmatch(name):
            without_index.setdefault(f"{part['name']}{part['suffix']}.index.json", []).append(name)
        else:
            yield Checkpoint(name, FORMATS[suffix], step_of(name, suffix), (name,))
    for index, files in without_index.items():
        library = INDEXES[_suffix(index, INDEXES)]
        reason = f"its index {index.rpartition('/')[2]} is missing"
        yield Checkpoint(index, library, step_of(index, ".index.json"), tuple(files), reason=reason)


def _indexed(listing: Listing, name: str, suffix: str, names: Collection[str]) -> Checkpoint:
    """Return the checkpoint of an index."""
    folder = name.rpartition("/")[0]
    step = step_of(name, suffix)
    try:
        data = listing.read(name, LARGEST_INDEX) or b""
        if data.count(b'"') > 4 * MOST_TENSORS:
            raise DecodeError("it names too many tensors")
        index = decode(data, Index)
    except DecodeError:
        return Checkpoint(name, INDEXES[suffix], step, (name,), (name,), "its index cannot be read")
    named = (files if isinstance(files, list) else [files] for files in index.weight_map.values())
    wanted = sorted({f"{folder}/{file}" for files in named for file in files})
    lacking = next((part for part in wanted if part not in names), "")
    reason = f"its file {lacking.rpartition('/')[2]} is missing" if lacking else ""
    files = (*(part for part in wanted if part in names), name)
    return Checkpoint(name, INDEXES[suffix], step, files, (name,), reason)


def _suffix(name: str, table: Collection[str]) -> str:
    """Return the longest suffix of a table that a name has; empty for none."""
    return max((suffix for suffix in table if name.endswith(suffix)), key=len, default="")
