"""Finds all checkpoints of a run: each reader gets what those before it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.checkpoints import files, orbax, pytorch, saved_model, tensorflow
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint
from tpuctl.flows.runs.checkpoints.listing import FOLDER, GoneError, Listing

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

READERS = (
    orbax.read_orbax,
    saved_model.read_saved_model,
    pytorch.read_pytorch,
    tensorflow.read_tensorflow,
    files.read_files,
)
"""Orbax first, whose folders may hold a file `checkpoint`; a SavedModel has files of TensorFlow's format."""
LOOKS = 10
"""Listings after which a bucket counts as one that changes faster than it is read."""


def checkpoints_in(listing: Listing) -> list[Checkpoint]:
    """Return the checkpoints that a listing shows, complete or not; raises GoneError."""
    names = dict.fromkeys(name for name in listing.objects if FOLDER in name)
    checkpoints: list[Checkpoint] = []
    for read in READERS:
        for checkpoint in list(read(listing, names.keys())):
            checkpoints.append(checkpoint)
            for file in checkpoint.files:
                names.pop(file, None)
    return checkpoints


def last_committed(bucket: Bucket, folder: str, warn: Report = silent) -> str:
    """Return the committed checkpoint of a folder that was written last, without its folder; '' for none."""
    for _ in range(LOOKS):
        listing = Listing(bucket, bucket.objects(folder), warn)
        try:
            committed = [checkpoint for checkpoint in checkpoints_in(listing) if not checkpoint.reason]
        except GoneError as error:
            gone = error
            continue
        newest = max(committed, key=lambda checkpoint: listing.generation(checkpoint.files), default=None)
        return newest.label if newest else ""
    warn(f"{gone} keeps changing.")
    return ""
