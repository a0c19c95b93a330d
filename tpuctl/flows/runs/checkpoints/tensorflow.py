"""Reads TensorFlow's checkpoints: one counts once the state file `checkpoint`, written last, names it.

`tf.train.CheckpointManager` writes the files, then the state file, then deletes old checkpoints, then writes
the state file again (tensorflow/python/checkpoint/checkpoint_management.py, `_record_and_sweep_state`): one
that is named may lack files. How many there are is in their names (`data-00000-of-00002`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain

from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint, step_of
from tpuctl.flows.runs.checkpoints.listing import Listing

STATE_FILE = "checkpoint"
LARGEST_STATE = 1 << 20
"""Most bytes of a state file: it lists about five checkpoints, or thousands of short names."""
SHARD = re.compile(r"(?P<checkpoint>.+)\.(?:index|data-\d{5}-of-(?P<count>\d{5}))")
_TEMPORARY = re.compile(
    r"(?P<checkpoint>.+?)(?:_temp/part-\d{5}-of-\d{5}.*|\.(?:index|data-\d{5}-of-\d{5})\.tempstate\d+)"
)
"""What is written before it is merged under its name: tensorflow/core/kernels/save_restore_v2_ops.cc."""
_DRAFT = re.compile(r"(?:.*/)?checkpoint\.tmp[0-9a-f]{32}")
"""A state file that is not renamed yet: tensorflow/python/lib/io/file_io.py, atomic_write_string_to_file."""
_PATH = re.compile(r'^(?:all_)?model_checkpoint_paths?: "(?P<path>[^"]+)"', re.MULTILINE)
"""A checkpoint that a state file names."""


def read_tensorflow(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints among some names; raises GoneError."""
    files: dict[str, list[str]] = {}
    temporary: dict[str, list[str]] = {}
    for name in names:
        if part := _TEMPORARY.fullmatch(name):
            temporary.setdefault(f"{part['checkpoint']}_temp", []).append(name)
        elif shard := SHARD.fullmatch(name):
            files.setdefault(shard["checkpoint"], []).append(name)
        elif _DRAFT.fullmatch(name):
            yield Checkpoint(name, "TensorFlow", None, (name,), reason="TensorFlow has not renamed it yet")
    for folder, parts in temporary.items():
        reason = "TensorFlow has not merged it yet"
        yield Checkpoint(folder, "TensorFlow", step_of(folder, "_temp"), tuple(parts), reason=reason)
    named = _named(listing, names) if files else {}
    for checkpoint, own in files.items():
        state_file = named.get(checkpoint)
        reason = missing(checkpoint, own) if state_file else "no state file names it"
        marks = (state_file,) if state_file else ()
        yield Checkpoint(checkpoint, "TensorFlow", step_of(checkpoint), tuple(own), marks, reason)


def missing(checkpoint: str, files: Collection[str]) -> str:
    """Return which file a checkpoint in TensorFlow's format lacks, as a reason; empty for a complete one."""
    counts = {shard["count"] for shard in map(SHARD.fullmatch, files) if shard and shard["count"]}
    count, present = min(counts, default="00001"), set(files)
    shards = (f"{checkpoint}.data-{number:05}-of-{count}" for number in range(int(count)))
    lacking = next((name for name in chain([f"{checkpoint}.index"], shards) if name not in present), "")
    return f"its file {lacking.rpartition('/')[2]} is missing" if lacking else ""


def _named(listing: Listing, names: Collection[str]) -> dict[str, str]:
    """Return the checkpoints that state files name, each with its state file; paths are relative or gs://."""
    named = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        if file == STATE_FILE:
            content = listing.read(name, LARGEST_STATE) or b""
            for path in _PATH.findall(content.decode("utf-8", "replace")):
                here = path.removeprefix(f"gs://{listing.bucket_name}/")
                named[here if path.startswith("gs://") else f"{folder}/{path}"] = name
    return named


def state_file(checkpoints: Collection[str]) -> bytes:
    """Return the content of a state file that names checkpoints of its folder, the newest one last."""
    *_, newest = names = [name.rpartition("/")[2] for name in checkpoints]
    lines = [
        f'model_checkpoint_path: "{newest}"',
        *(f'all_model_checkpoint_paths: "{name}"' for name in names),
    ]
    return "".join(f"{line}\n" for line in lines).encode()
