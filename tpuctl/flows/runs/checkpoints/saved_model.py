"""Reads SavedModels: the variables come first, saved_model.pb after them.

tensorflow/python/saved_model/save.py, `save_and_return_nodes`; what loads one needs saved_model.pb and, if
there are variables, all of their files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint, below, step_of
from tpuctl.flows.runs.checkpoints.listing import Listing
from tpuctl.flows.runs.checkpoints.tensorflow import SHARD, missing

_PROGRAMS = ("saved_model.pb", "saved_model.pbtxt")
_VARIABLES = "variables/variables"


def read_saved_model(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the SavedModels among some names."""
    ordered = sorted(names)
    for folder in sorted({folder for folder in map(_model_folder, names) if folder}):
        files = below(ordered, folder)
        programs = [f"{folder}{program}" for program in _PROGRAMS if f"{folder}{program}" in files]
        variables = [name for name in files if name.startswith(f"{folder}{_VARIABLES}.")]
        reason = missing(f"{folder}{_VARIABLES}", variables) if variables else ""
        if not programs:
            reason = "its saved_model.pb is missing"
        name = folder[:-1]
        yield Checkpoint(name, "SavedModel", step_of(name), tuple(files), tuple(programs), reason)


def _model_folder(name: str) -> str:
    """Return the folder of the SavedModel that a file shows there is, with its slash; empty for others."""
    folder, _, file = name.rpartition("/")
    if file in _PROGRAMS:
        return f"{folder}/"
    shard = SHARD.fullmatch(name)
    return (
        shard["checkpoint"].removesuffix(_VARIABLES) if shard and _is_variables(shard["checkpoint"]) else ""
    )


def _is_variables(checkpoint: str) -> bool:
    return checkpoint.endswith(f"/{_VARIABLES}")
