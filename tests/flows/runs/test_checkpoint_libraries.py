"""Checkpoints of libraries, by the names of their objects and as they write them.

Committed, whole, one object missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.runs.records import write_run
from tests.forks.tensorflow_python import python
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.checkpoints import (
    LARGEST_STATE,
    GoneError,
    Listing,
    checkpoints_in,
    last_committed,
    step_of,
)

NAMES_FOLDER = "runs/r1/checkpoints/"


def write_names(bucket: Bucket, *names: str, data: bytes = b"x") -> None:
    for name in names:
        bucket.upload(f"{NAMES_FOLDER}{name}", [data], "application/octet-stream")


def reasons(bucket: Bucket) -> dict[str, str]:
    listing = Listing(bucket, bucket.objects(NAMES_FOLDER))
    return {one.name.removeprefix(NAMES_FOLDER): one.reason for one in checkpoints_in(listing)}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ckpt-12", 12), ("model.ckpt-12", 12), ("12", 12), ("step_12", 12), ("a/step=12/model", 12),
        ("epoch=3-step=12", 12), ("loss-0.31", None), ("best", None), ("12/default", 12),
        ("checkpoint-500/model", 500), ("9" * 20, None),
    ],
)  # fmt: skip
def test_the_step_is_a_number_at_the_end_of_a_name(name: str, step: int | None) -> None:
    assert step_of(f"{NAMES_FOLDER}{name}") == step


class TestPyTorch:
    def test_a_distributed_one_needs_its_metadata(self, bucket: Bucket) -> None:
        write_names(bucket, "step-10/__0_0.distcp", "step-10/__1_0.distcp")
        assert reasons(bucket) == {"step-10": "its .metadata is missing"}
        write_names(bucket, "step-10/.metadata")
        assert reasons(bucket) == {"step-10": ""}

    def test_the_metadata_of_one_that_was_there_before_does_not_count(self, bucket: Bucket) -> None:
        write_names(bucket, "step-10/__0_0.distcp", "step-10/.metadata", "step-10/__0_0.distcp")
        assert reasons(bucket) == {"step-10": "its .metadata is older than its parts"}

    @pytest.mark.parametrize(
        "name", ["epoch=3-step=12.ckpt", "model-12.pt", "model-12.pth", "step_12/model.bin"]
    )
    def test_a_whole_file_is_complete(self, bucket: Bucket, name: str) -> None:
        write_names(bucket, name)
        assert reasons(bucket) == {name: ""}
        assert last_committed(bucket, NAMES_FOLDER) == name.rpartition("/")[2]


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("model-12.keras", "Keras"), ("model-12.weights.h5", "Keras"), ("model-12.h5", "Keras"),
        ("model-12.safetensors", "safetensors"), ("model-12.pt", "PyTorch"), ("model-12.pth", "PyTorch"),
        ("model-12.ckpt", "PyTorch"), ("model-12.bin", "PyTorch"), ("model-12.msgpack", "Flax"),
    ],
)  # fmt: skip
def test_a_whole_file_has_its_library_and_step_by_its_name(bucket: Bucket, name: str, library: str) -> None:
    write_names(bucket, name)
    (checkpoint,) = checkpoints_in(Listing(bucket, bucket.objects(NAMES_FOLDER)))
    assert (checkpoint.format, checkpoint.step, checkpoint.files) == (library, 12, (f"{NAMES_FOLDER}{name}",))


@pytest.mark.parametrize(
    ("index", "part", "library"),
    [
        ("model.safetensors.index.json", "model-00001-of-00001.safetensors", "safetensors"),
        ("model.bin.index.json", "model-00001-of-00001.bin", "PyTorch"),
        ("model.weights.json", "model_00000.weights.h5", "Keras"),
    ],
)
def test_an_index_and_its_parts_are_one_of_their_library(
    bucket: Bucket, index: str, part: str, library: str
) -> None:
    write_names(bucket, part)
    write_names(bucket, index, data=b'{"weight_map": {"a": "%s"}}' % part.encode())
    (checkpoint,) = checkpoints_in(Listing(bucket, bucket.objects(NAMES_FOLDER)))
    assert (checkpoint.format, checkpoint.reason) == (library, "")
    assert set(checkpoint.files) == {f"{NAMES_FOLDER}{index}", f"{NAMES_FOLDER}{part}"}


class TestOrbax:
    def test_a_temporary_name_never_counts(self, bucket: Bucket) -> None:
        folder = "5.orbax-checkpoint-tmp-123"
        write_names(bucket, f"{folder}/commit_success.txt", f"{folder}/default/manifest.ocdbt")
        assert reasons(bucket) == {folder: "Orbax has not renamed it yet"}

    def test_a_commit_in_the_metadata_counts_unless_it_is_being_renamed(self, bucket: Bucket) -> None:
        """As AtomicityMode.ATOMIC_RENAME leaves it in a bucket."""
        write_names(bucket, "5/default/manifest.ocdbt")
        write_names(
            bucket,
            "5/_CHECKPOINT_METADATA",
            data=b'{"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": null}',
        )
        assert reasons(bucket) == {"5": "it has no commit_success.txt"}
        write_names(bucket, "5/_CHECKPOINT_METADATA", data=b'{"commit_timestamp_nsecs": 2}')
        assert reasons(bucket) == {"5": ""}
        write_names(bucket, "5.orbax-checkpoint-tmp-1/default/manifest.ocdbt")
        assert reasons(bucket)["5"] == "Orbax is renaming it"

    def test_metadata_that_is_none_commits_nothing(self, bucket: Bucket) -> None:
        write_names(bucket, "5/default/manifest.ocdbt", "5/_CHECKPOINT_METADATA")
        assert reasons(bucket) == {"5": "it has no commit_success.txt"}

    def test_a_file_called_checkpoint_in_it_is_its_own(self, bucket: Bucket) -> None:
        write_names(bucket, "5/default/checkpoint", "5/default/_METADATA", "5/commit_success.txt")
        listing = Listing(bucket, bucket.objects(NAMES_FOLDER))
        (checkpoint,) = checkpoints_in(listing)
        assert (checkpoint.format, len(checkpoint.files), listing.contents) == ("Orbax", 3, {})


def test_what_tensorflow_has_not_merged_yet_is_left_out(bucket: Bucket) -> None:
    write_names(
        bucket, "ckpt-2_temp/part-00000-of-00001.data-00000-of-00001", "ckpt-2_temp/part-00000-of-00001.index"
    )
    write_names(bucket, "ckpt-2_temp/part-00000-of-00001.index.tempstate123")
    assert reasons(bucket) == {"ckpt-2_temp": "TensorFlow has not merged it yet"}


def test_a_draft_of_tensorflows_state_file_is_not_one(bucket: Bucket) -> None:
    draft = f"checkpoint.tmp{'0f' * 16}"
    write_names(bucket, draft, "checkpoint.tmpl")
    assert reasons(bucket) == {draft: "TensorFlow has not renamed it yet"}


class TestIndex:
    @pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"weight_map": {"a": 1}}', b"\xff"])
    def test_that_cannot_be_read_commits_nothing(self, bucket: Bucket, data: bytes) -> None:
        write_names(bucket, "model-00001-of-00001.safetensors")
        write_names(bucket, "model.safetensors.index.json", data=data)
        assert "" not in reasons(bucket).values()


def test_a_small_object_that_is_replaced_meanwhile_is_gone(bucket: Bucket) -> None:
    write_names(bucket, "ckpt-1.index", "checkpoint")
    listing = Listing(bucket, bucket.objects(NAMES_FOLDER))
    write_names(bucket, "checkpoint")
    with pytest.raises(GoneError):
        checkpoints_in(listing)
    assert last_committed(bucket, NAMES_FOLDER) == ""


RUN = "runs/r1/"
FOLDER = f"{RUN}checkpoints/"


def files_of(checkpoint: str, folder: str = FOLDER, shards: int = 1) -> list[str]:
    data = [f"{folder}{checkpoint}.data-{shard:05}-of-{shards:05}" for shard in range(shards)]
    return [*data, f"{folder}{checkpoint}.index"]


def write(bucket: Bucket, *names: str, text: str = "x") -> None:
    for name in names:
        bucket.upload(name, [text.encode()], "text/plain")


def name_checkpoints(bucket: Bucket, *paths: str, folder: str = FOLDER) -> None:
    """Write the state file that TensorFlow writes last."""
    lines = [
        f'model_checkpoint_path: "{paths[-1]}"',
        *(f'all_model_checkpoint_paths: "{path}"' for path in paths),
    ]
    write(bucket, f"{folder}checkpoint", text="\n".join(lines) + "\n")


def test_a_state_file_that_is_too_large_commits_nothing_and_is_named(bucket: Bucket) -> None:
    write(bucket, *files_of("ckpt-1"))
    write(bucket, f"{FOLDER}checkpoint", text="x" * (LARGEST_STATE + 1))
    warnings: list[str] = []
    (checkpoint,) = checkpoints_in(Listing(bucket, bucket.objects(RUN), warnings.append))
    assert checkpoint.reason == "no state file names it"
    assert warnings == [f"{FOLDER}checkpoint is larger than 1,048,576 bytes."]


def split(bucket: Bucket) -> tuple[list[str], list[str]]:
    """Return the names of all objects that no unfinished checkpoint has, and those of the others."""
    listing = Listing(bucket, bucket.objects(RUN))
    unfinished = {file for one in checkpoints_in(listing) if one.reason for file in one.files}
    return [name for name in listing.objects if name not in unfinished], sorted(unfinished)


def test_a_checkpoint_that_no_state_file_names_is_uncommitted(bucket: Bucket) -> None:
    write(bucket, *files_of("ckpt-1", shards=2))
    assert split(bucket) == ([], files_of("ckpt-1", shards=2))


def test_every_checkpoint_that_the_state_file_names_is_committed(bucket: Bucket) -> None:
    for name in ("ckpt-1", "ckpt-2", "ckpt-3"):
        write(bucket, *files_of(name))
    name_checkpoints(bucket, "ckpt-1", "ckpt-2")
    committed, uncommitted = split(bucket)
    assert committed == [f"{FOLDER}checkpoint", *files_of("ckpt-1"), *files_of("ckpt-2")]
    assert uncommitted == files_of("ckpt-3")


def test_a_name_that_begins_like_a_committed_one_is_another_checkpoint(bucket: Bucket) -> None:
    write(bucket, *files_of("ckpt-1"), *files_of("ckpt-10"))
    name_checkpoints(bucket, "ckpt-1")
    assert split(bucket)[1] == files_of("ckpt-10")


@pytest.mark.parametrize(
    "path", ["ckpt-1", f"gs://sim-project-tpuctl/{FOLDER}ckpt-1"], ids=["relative", "gs://"]
)
def test_a_state_file_may_name_paths_in_either_way(bucket: Bucket, path: str) -> None:
    write(bucket, *files_of("ckpt-1"))
    name_checkpoints(bucket, path)
    assert split(bucket)[1] == []


def test_a_path_in_another_bucket_commits_nothing_here(bucket: Bucket) -> None:
    write(bucket, *files_of("ckpt-1"))
    name_checkpoints(bucket, f"gs://other/{FOLDER}ckpt-1")
    assert split(bucket)[1] == files_of("ckpt-1")


def test_each_folder_has_its_own_state_file(bucket: Bucket) -> None:
    for folder in (f"{FOLDER}a/", f"{FOLDER}b/"):
        write(bucket, *files_of("ckpt-1", folder))
    name_checkpoints(bucket, "ckpt-1", folder=f"{FOLDER}a/")
    assert split(bucket)[1] == files_of("ckpt-1", f"{FOLDER}b/")


def test_other_files_are_committed_whatever_they_are_called(bucket: Bucket) -> None:
    names = [
        f"{FOLDER}1/metadata",
        f"{FOLDER}weights.h5",
        f"{RUN}outputs/saved_model/variables/variables.data-00000-of-00001",
        f"{RUN}outputs/saved_model/variables/variables.index",
        f"{RUN}run.json",
    ]
    write(bucket, *names)
    assert split(bucket) == (names, [])


def test_folders_are_left_out(bucket: Bucket) -> None:
    write(bucket, f"{RUN}z.json", f"{RUN}outputs/")
    assert split(bucket) == ([f"{RUN}z.json"], [])


def test_a_state_file_that_is_not_text_commits_nothing(bucket: Bucket) -> None:
    write(bucket, *files_of("ckpt-1"))
    bucket.upload(f"{FOLDER}checkpoint", [b"\xff\xfe\x00"], "text/plain")
    assert split(bucket) == ([f"{FOLDER}checkpoint"], files_of("ckpt-1"))


@pytest.mark.daily
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["ckpt-1.index"], "its file ckpt-1.data-00000-of-00001 is missing"),
        (["ckpt-1.data-00000-of-00001"], "its file ckpt-1.index is missing"),
        (["ckpt-1.index", "ckpt-1.data-00001-of-00002"], "its file ckpt-1.data-00000-of-00002 is missing"),
        (["ckpt-1.index", "ckpt-1.data-00000-of-00002", "ckpt-1.data-00001-of-00002"], ""),
    ],
)
def test_a_checkpoint_that_is_named_needs_all_its_files(
    bucket: Bucket, files: list[str], reason: str
) -> None:
    """The library deletes an old one before the state file stops naming it."""
    write(bucket, *(f"{FOLDER}{file}" for file in files))
    name_checkpoints(bucket, "ckpt-1")
    (checkpoint,) = checkpoints_in(Listing(bucket, bucket.objects(RUN)))
    assert (checkpoint.reason, checkpoint.step, checkpoint.label) == (reason, 1, "ckpt-1")


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
