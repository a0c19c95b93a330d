"""Checkpoints that the libraries themselves write to the bucket, whole and with the last object missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.runs.records import write_run
from tests.forks.tensorflow_python import python
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.checkpoints import Listing, checkpoints_in, last_committed

WRITER = """
import json, os, sys, tempfile
from pathlib import Path
import numpy as np
import tensorflow as tf
import keras

root = sys.argv[1]
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(300, name="a"), keras.layers.Dense(300)])
tf.train.CheckpointManager(tf.train.Checkpoint(model=model), f"{root}/tensorflow", 3).save(100)
tf.saved_model.save(model, f"{root}/saved/200")
model.export(f"{root}/exported")
model.save(f"{root}/keras/300.keras")
model.save_weights(f"{root}/keras/epoch-04.weights.h5")

def upload(folder, place):
    for path in sorted(Path(folder).iterdir(), key=lambda path: path.name.endswith(".json")):
        tf.io.gfile.makedirs(f"{root}/{place}")
        tf.io.gfile.copy(str(path), f"{root}/{place}/{path.name}")

with tempfile.TemporaryDirectory() as folder:
    model.save_weights(f"{folder}/model.weights.json", max_shard_size=0.0004)
    upload(folder, "keras/step-500")

from safetensors.numpy import save_file
with tempfile.TemporaryDirectory() as folder:
    save_file({"a": np.ones(10)}, f"{folder}/model.safetensors")
    upload(folder, "safetensors/step_600")
with tempfile.TemporaryDirectory() as folder:  # as Hugging Face's save_pretrained splits them
    names = {name: f"model-0000{number}-of-00002.safetensors" for number, name in enumerate("ab", 1)}
    for tensor, file in names.items():
        save_file({tensor: np.ones(10)}, f"{folder}/{file}")
    Path(folder, "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    upload(folder, "safetensors/step_700")

import jax
import orbax.checkpoint as ocp
from etils import epath
state = {"a": jax.numpy.ones(1000), "b": {"c": jax.numpy.zeros(3)}}
with ocp.CheckpointManager(epath.Path(f"{root}/orbax"), options=ocp.CheckpointManagerOptions()) as manager:
    manager.save(800, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(epath.Path(f"{root}/plain-orbax"), state)
handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
with ocp.Checkpointer(handler) as checkpointer:  # the first layout: a folder of zarr for each array
    checkpointer.save(epath.Path(f"{root}/old-orbax/900"), state)
"""
EXPECTED = {
    "exported": ("SavedModel", None),
    "keras/300.keras": ("Keras", 300),
    "keras/epoch-04.weights.h5": ("Keras", 4),
    "keras/step-500/model.weights.json": ("Keras", 500),
    "old-orbax/900": ("Orbax", 900),
    "orbax/800": ("Orbax", 800),
    "plain-orbax": ("Orbax", None),
    "safetensors/step_600/model.safetensors": ("safetensors", 600),
    "safetensors/step_700/model.safetensors.index.json": ("safetensors", 700),
    "saved/200": ("SavedModel", 200),
    "tensorflow/ckpt-100": ("TensorFlow", 100),
}
RUN = "runs/r1/"
LIBRARIES_FOLDER = f"{RUN}checkpoints/"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """A bucket with one checkpoint of each kind: libraries are imported, and write, once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("libraries")
        patch.setenv("TPUCTL_STATE", str(folder / "state"))
        patch.setenv("TPUCTL_TARGET", "sim")
        patch.setenv("HOME", str(folder))
        patch.chdir(folder)
        simulator = RunningSimulator(folder / "state" / "sim")
        cloud = connect(load({}))
        try:
            write_run(cloud.bucket)
            variables = simulator.simulator.endpoints["environment"]
            ended = python(
                "-c", WRITER, f"gs://{cloud.bucket.name}/{LIBRARIES_FOLDER}".rstrip("/"), variables=variables
            )
            assert ended.returncode == 0, ended.stderr[-3000:]
            yield cloud.bucket
        finally:
            cloud.close()
            simulator.close()


@pytest.mark.slow
def test_each_is_whole_with_the_step_in_its_name(written: Bucket) -> None:
    listing = Listing(written, written.objects(RUN))
    found = {one.name.removeprefix(LIBRARIES_FOLDER): one for one in checkpoints_in(listing)}
    assert {name: one.reason for name, one in found.items()} == dict.fromkeys(EXPECTED, "")
    assert {name: (one.format, one.step) for name, one in found.items()} == EXPECTED


@pytest.mark.slow
def test_every_file_but_state_files_is_of_one_checkpoint(written: Bucket) -> None:
    listing = Listing(written, written.objects(LIBRARIES_FOLDER))
    claimed = [file for one in checkpoints_in(listing) for file in one.files]
    assert len(claimed) == len(set(claimed))
    assert set(listing.objects) - set(claimed) == {f"{LIBRARIES_FOLDER}tensorflow/checkpoint"}


@pytest.mark.slow
def test_the_last_one_is_that_which_was_written_last(written: Bucket) -> None:
    assert last_committed(written, LIBRARIES_FOLDER) == "900"


UNFINISHED = {
    "exported": {
        "saved_model.pb": "its saved_model.pb is missing",
        "variables/variables.index": "its file variables.index is missing",
    },
    "keras/step-500/model.weights.json": {
        "": "",
        "model_00000.weights.h5": "its file model_00000.weights.h5 is missing",
    },
    "orbax/800": {"commit_success.txt": "it has no commit_success.txt"},
    "safetensors/step_700/model.safetensors.index.json": {
        "": "its index model.safetensors.index.json is missing",
        "model-00002-of-00002.safetensors": "its file model-00002-of-00002.safetensors is missing",
    },
    "tensorflow/ckpt-100": {
        "ckpt-100.index": "its file ckpt-100.index is missing",
        "checkpoint": "no state file names it",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"), [(name, file) for name, files in UNFINISHED.items() for file in files]
)
def test_without_what_is_written_last_it_is_left_out(written: Bucket, name: str, file: str) -> None:
    reasons = reasons_without(written, LIBRARIES_FOLDER + place_of(name, file))
    expected = UNFINISHED[name][file]
    assert reasons.get(name, "") == expected
    assert {other for other, reason in reasons.items() if reason} <= {name}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain-orbax", "old-orbax/900"])
def test_one_of_orbax_without_items_needs_either_mark(written: Bucket, name: str) -> None:
    marks = ("commit_success.txt", "_CHECKPOINT_METADATA")
    assert reasons_without(written, *(f"{LIBRARIES_FOLDER}{name}/{mark}" for mark in marks[:1]))[name] == ""
    reasons = reasons_without(written, *(f"{LIBRARIES_FOLDER}{name}/{mark}" for mark in marks))
    assert reasons[name] == "it has no commit_success.txt"


def place_of(name: str, file: str) -> str:
    """Return the name below the checkpoints of a file in, or beside, a checkpoint; of itself without one."""
    if not file:
        return name
    folder = (
        name if name in ("exported", "orbax/800", "plain-orbax", "old-orbax/900") else name.rpartition("/")[0]
    )
    return f"{folder}/{file}"


def reasons_without(bucket: Bucket, *missing: str) -> dict[str, str]:
    """Return why each checkpoint is unfinished in a listing without some objects."""
    objects = bucket.objects(RUN)
    rest = [item for item in objects if item.name not in missing]
    assert len(rest) == len(objects) - len(missing), missing
    return {
        one.name.removeprefix(LIBRARIES_FOLDER): one.reason for one in checkpoints_in(Listing(bucket, rest))
    }
