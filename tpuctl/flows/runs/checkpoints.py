"""Lists the committed checkpoints of a run: those that TensorFlow's state files name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError
from tpuctl.flows.progress import Report, silent

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

STATE_FILE = "checkpoint"
"""TensorFlow writes it last: a checkpoint that it does not name is unfinished or superseded."""
LARGEST = 1 << 20
"""Most bytes of a state file: it lists about five checkpoints, or thousands of short names."""
SHARD = re.compile(r"(?P<checkpoint>.+)\.(index|data-\d{5}-of-\d{5})")
PATH = re.compile(r'^(?:all_)?model_checkpoint_paths?: "(?P<path>[^"]+)"', re.MULTILINE)
"""A checkpoint that a state file names."""


def split_committed(
    bucket: Bucket, objects: Iterable[Object], warn: Report = silent
) -> tuple[list[Object], list[str]]:
    """Return the objects of a run without those of uncommitted checkpoints, and the names of the latter.

    `warn` gets a line about each state file that is none, or is deleted meanwhile: it commits nothing.
    """
    files = [listed for listed in objects if not listed.name.endswith("/")]
    state_files = [file for file in files if is_state_file(file)]
    committed: set[str | None] = {None}
    for state_file in state_files:
        try:
            committed.update(_checkpoints(bucket, state_file))
        except (BadObjectError, NotFoundError) as error:
            warn(error.message)
    complete = [file for file in files if _checkpoint_of(file) in committed]
    return complete, [file.name for file in files if _checkpoint_of(file) not in committed]


def last_committed(bucket: Bucket, objects: Iterable[Object], warn: Report = silent) -> str:
    """Return the name of the committed checkpoint that was written last, without its folder; '' for none."""
    committed, _ = split_committed(bucket, objects, warn)
    shards = [file for file in committed if _checkpoint_of(file)]
    newest = max(shards, key=lambda file: file.generation, default=None)
    return (_checkpoint_of(newest) or "").rpartition("/")[2] if newest else ""


def is_state_file(file: Object) -> bool:
    """Tell whether a file names checkpoints; a copy of a run gets it once it has them."""
    return file.name.rpartition("/")[2] == STATE_FILE


def _checkpoint_of(file: Object) -> str | None:
    """Return the name of the checkpoint that a file is a shard of, or None for any other file."""
    shard = SHARD.fullmatch(file.name)
    return shard["checkpoint"] if shard and "/checkpoints/" in file.name else None


def _checkpoints(bucket: Bucket, state_file: Object) -> Iterator[str]:
    """Yield the checkpoints that a state file names, as names in the bucket; its paths are relative or gs://."""
    folder = state_file.name.rpartition("/")[0]
    for path in PATH.findall(bucket.read(state_file.name, LARGEST).decode("utf-8", "replace")):
        if path.startswith("gs://"):
            yield path.removeprefix(f"gs://{bucket.name}/")
        else:
            yield f"{folder}/{path}"
