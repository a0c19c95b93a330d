"""Reads distributed checkpoints of PyTorch: a folder of `.distcp` files, whose `.metadata` is written last.

torch/distributed/checkpoint/filesystem.py, `_FileSystemWriter.finish`: the coordinator writes it once every
rank has written. One that is older than a part is that of the checkpoint which the folder had before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint, step_of
from tpuctl.flows.runs.checkpoints.listing import Listing

_DISTRIBUTED_PART = ".distcp"
_METADATA = ".metadata"


def read_pytorch(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the distributed checkpoints among some names."""
    folders: dict[str, list[str]] = {
        name.rpartition("/")[0]: [] for name in sorted(names) if name.endswith(_DISTRIBUTED_PART)
    }
    for name in names:
        if (folder := name.rpartition("/")[0]) in folders:
            folders[folder].append(name)
    for folder, files in sorted(folders.items()):
        mark = f"{folder}/{_METADATA}"
        marks = (mark,) if mark in files else ()
        reason = "" if marks else f"its {_METADATA} is missing"
        if marks and listing.generation(marks) < listing.generation(set(files) - {mark}):
            reason = f"its {_METADATA} is older than its parts"
        yield Checkpoint(folder, "PyTorch", step_of(folder), tuple(files), marks, reason)
