"""Which objects of a run are committed: a checkpoint is, once TensorFlow's state file names it."""

from __future__ import annotations

import pytest

from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.checkpoints import LARGEST_STATE, Listing, checkpoints_in

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
