"""Checkpoints by the names of their objects: what libraries that are not installed here would write."""

from __future__ import annotations

import pytest

from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.checkpoints import GoneError, Listing, checkpoints_in, last_committed, step_of

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
