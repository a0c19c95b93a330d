"""Checkpoints of whole files: what belongs to one, and what of it is missing.

A bucket that somebody has filled with checkpoints is read in little memory, and each name a few times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs import checkpoints
from tpuctl.flows.runs import checkpoints as module
from tpuctl.flows.runs.checkpoints import READERS, Checkpoint, Listing, checkpoints_in

FOLDER = "runs/r1/checkpoints/"


def listing_of(*names: str, **contents: bytes) -> Listing:
    """Return a listing of objects, `__` for the dots of those with contents."""
    memory = MemoryBucket()
    for name in names:
        memory.put(f"{FOLDER}{name}", b"x")
    for name, data in contents.items():
        memory.put(f"{FOLDER}{name.replace('__', '.')}", data)
    bucket = cast("Bucket", memory)
    return Listing(bucket, bucket.objects(""))


def below(names: tuple[str, ...]) -> list[str]:
    return [name.removeprefix(FOLDER) for name in names]


def index_of(*parts: str | list[str]) -> bytes:
    return json.dumps(
        {"weight_map": {f"tensor {number}": part for number, part in enumerate(parts)}}
    ).encode()


class TestFiles:
    def read(self, listing: Listing) -> list[Checkpoint]:
        return list(checkpoints.read_files(listing, list(listing.objects)))

    @pytest.mark.parametrize(
        ("name", "library", "step"),
        [
            ("a/model-7.keras", "Keras", 7), ("ckpt-7.weights.h5", "Keras", 7), ("model.h5", "Keras", None),
            ("step_7.safetensors", "safetensors", 7), ("7.pt", "PyTorch", 7), ("x.pth", "PyTorch", None),
            ("x.ckpt", "PyTorch", None), ("x.bin", "PyTorch", None), ("x.msgpack", "Flax", None),
        ],
    )  # fmt: skip
    def test_a_file_alone_is_complete(self, name: str, library: str, step: int | None) -> None:
        assert self.read(listing_of(name)) == [
            Checkpoint(f"{FOLDER}{name}", library, step, (f"{FOLDER}{name}",))
        ]

    @pytest.mark.parametrize("name", ["model.txt", "ptx", "checkpoint", "model.pt.tmp"])
    def test_other_files_are_none(self, name: str) -> None:
        assert self.read(listing_of(name)) == []

    def test_an_index_names_its_parts_and_marks_them(self) -> None:
        listing = listing_of(
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
            model__safetensors__index__json=index_of(
                "model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors",
                "model-00001-of-00002.safetensors",
            ),
        )  # fmt: skip
        (checkpoint,) = self.read(listing)
        assert (checkpoint.label, checkpoint.format, checkpoint.step, checkpoint.reason) == (
            "model.safetensors.index.json", "safetensors", None, "",
        )  # fmt: skip
        assert below(checkpoint.files) == [
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ]  # fmt: skip
        assert below(checkpoint.marks) == ["model.safetensors.index.json"]

    def test_a_part_that_is_missing_is_named(self) -> None:
        listing = listing_of(
            "a-00001-of-00002.bin",
            model__bin__index__json=index_of(["a-00001-of-00002.bin", "a-00002-of-00002.bin"]),
        )
        (checkpoint,) = self.read(listing)
        assert checkpoint.reason == "its file a-00002-of-00002.bin is missing"
        assert below(checkpoint.files) == ["a-00001-of-00002.bin", "model.bin.index.json"]

    @pytest.mark.parametrize("data", [b"", b"{", b'{"weight_map": 1}'])
    def test_an_index_that_cannot_be_read_completes_nothing(self, data: bytes) -> None:
        (checkpoint,) = self.read(listing_of(model__bin__index__json=data))
        assert checkpoint.reason == "its index cannot be read"
        assert below(checkpoint.files) == below(checkpoint.marks) == ["model.bin.index.json"]

    def test_an_index_of_very_many_tensors_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A job may write one: 47 MB of short names took 1.6 GB on the laptop."""
        listing = listing_of("m.bin", model__bin__index__json=index_of(*["m.bin"] * 4))
        assert not self.read(listing)[0].reason
        monkeypatch.setattr(checkpoints, "MOST_TENSORS", 4)
        assert self.read(listing)[0].reason == "its index cannot be read"

    def test_parts_without_an_index_wait_for_it(self) -> None:
        listing = listing_of("step-7/m-00001-of-00002.bin", "step-7/m-00002-of-00002.bin", "n-1-of-2.bin")
        parts, alone = sorted(self.read(listing), key=lambda one: one.name, reverse=True)
        assert (parts.name, parts.format, parts.step) == (f"{FOLDER}step-7/m.bin.index.json", "PyTorch", 7)
        assert parts.reason == "its index m.bin.index.json is missing"
        assert below(parts.files) == ["step-7/m-00001-of-00002.bin", "step-7/m-00002-of-00002.bin"]
        assert (alone.label, alone.reason) == ("n-1-of-2.bin", "")


class TestOrbax:
    def read(self, *names: str, **contents: bytes) -> dict[str, Checkpoint]:
        listing = listing_of(*names, **contents)
        steps = checkpoints.read_orbax(listing, list(listing.objects))
        return {one.name.removeprefix(FOLDER): one for one in steps}

    def test_a_committed_step_has_all_files_of_its_folder(self) -> None:
        (step,) = self.read("7/default/manifest.ocdbt", "7/default/d/x", "7/commit_success.txt").values()
        assert (step.format, step.step, step.reason) == ("Orbax", 7, "")
        assert below(step.files) == ["7/commit_success.txt", "7/default/d/x", "7/default/manifest.ocdbt"]
        assert below(step.marks) == ["7/commit_success.txt"]

    @pytest.mark.parametrize(
        ("names", "folder"),
        [
            (["7/_METADATA"], "7"), (["run_7/_sharding"], "run_7"), (["best/_CHECKPOINT_METADATA"], "best"),
            (["best/ocdbt.process_0/d/x"], "best"), (["best/array_metadatas/x"], "best"),
            (["best/3/.zarray"], "best/3"), (["7/params/3/.zarray"], "7"),
            (["7.orbax-checkpoint-tmp-9/x"], "7.orbax-checkpoint-tmp-9"),
            (["a/7/default/manifest.ocdbt"], "a/7"),
        ],
    )  # fmt: skip
    def test_its_folder_is_that_of_the_step(self, names: list[str], folder: str) -> None:
        assert list(self.read(*names)) == [folder]

    @pytest.mark.parametrize("name", ["7/x", "best/.zarray", "7/manifest", "x"])
    def test_other_files_are_none(self, name: str) -> None:
        assert self.read(name) == {}

    def test_a_folder_inside_of_one_is_part_of_it(self) -> None:
        assert list(self.read("a/_METADATA", "a/b/_METADATA", "ab/_METADATA")) == ["a", "ab"]

    @pytest.mark.parametrize(
        ("metadata", "reason"),
        [
            (b'{"commit_timestamp_nsecs": 1}', ""),
            (b'{"commit_timestamp_nsecs": null}', "it has no commit_success.txt"),
            (b"{", "it has no commit_success.txt"),
            (b"", "it has no commit_success.txt"),
        ],
    )
    def test_its_metadata_may_commit_it(self, metadata: bytes, reason: str) -> None:
        memory = MemoryBucket()
        memory.put(f"{FOLDER}7/d/manifest.ocdbt", b"x")
        memory.put(f"{FOLDER}7/_CHECKPOINT_METADATA", metadata)
        bucket = cast("Bucket", memory)
        listing = Listing(bucket, bucket.objects(""))
        (step,) = checkpoints.read_orbax(listing, list(listing.objects))
        assert step.reason == reason
        assert below(step.marks) == ["7/_CHECKPOINT_METADATA"]

    def test_where_an_item_is_committed_by_a_file_the_step_has_to_be(self) -> None:
        memory = MemoryBucket()
        memory.put(f"{FOLDER}7/d/commit_success.txt", b"x")
        memory.put(f"{FOLDER}7/_CHECKPOINT_METADATA", b'{"commit_timestamp_nsecs": 1}')
        bucket = cast("Bucket", memory)
        listing = Listing(bucket, bucket.objects(""))
        (step,) = checkpoints.read_orbax(listing, list(listing.objects))
        assert step.reason == "it has no commit_success.txt"

    def test_a_temporary_name_never_counts_and_keeps_the_final_one_from_it(self) -> None:
        memory = MemoryBucket()
        memory.put(f"{FOLDER}7/_CHECKPOINT_METADATA", b'{"commit_timestamp_nsecs": 1}')
        memory.put(f"{FOLDER}7.orbax-checkpoint-tmp-1/x", b"x")
        bucket = cast("Bucket", memory)
        listing = Listing(bucket, bucket.objects(""))
        steps = {
            one.label: (one.step, one.reason)
            for one in checkpoints.read_orbax(listing, list(listing.objects))
        }
        assert steps == {
            "7": (7, "Orbax is renaming it"),
            "7.orbax-checkpoint-tmp-1": (7, "Orbax has not renamed it yet"),
        }


KINDS = {
    "Orbax": ("{}/commit_success.txt", "{}/d/x"),
    "Orbax that is renamed": ("{}/_METADATA", "{}.orbax-checkpoint-tmp/d/x"),
    "PyTorch": ("{}/__0_0.distcp", "{}/.metadata"),
    "SavedModel": ("{}/saved_model.pb", "{}/variables/variables.index"),
    "TensorFlow": ("{}/a.index", "{}/a.data-00000-of-00001", "{}/checkpoint"),
    "files": ("{}/model.safetensors.index.json", "{}/model-00001-of-00002.safetensors"),
}


class Counted(dict[str, None]):
    """Names that count how often somebody goes through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_not_walked_through_for_each_checkpoint(kind: str) -> None:
    names = [pattern.format(number) for number in range(50) for pattern in KINDS[kind]]
    listing = listing_of(*names)
    for read in READERS:
        counted = Counted.fromkeys(sorted(f"{FOLDER}{name}" for name in names))
        list(read(listing, counted))
        assert counted.walks <= 4, read.__module__
    assert len(checkpoints_in(listing)) >= 50


def test_a_checkpoint_of_very_many_parts_lacks_the_first_that_is_missing() -> None:
    names = [f"{FOLDER}a.index", f"{FOLDER}a.data-00000-of-99999"]
    assert checkpoints.missing(f"{FOLDER}a", names) == "its file a.data-00001-of-99999 is missing"


def test_small_objects_are_held_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 250)
    memory, warnings = MemoryBucket(), list[str]()
    for number in range(5):
        memory.put(f"{FOLDER}{number}/checkpoint", b"x" * 100)
    bucket = cast("Bucket", memory)
    listing = Listing(bucket, bucket.objects(""), warnings.append)
    read = [listing.read(f"{FOLDER}{number}/checkpoint", 1000) for number in range(5)]
    assert [data is not None for data in read] == [True, True, False, False, False]
    assert sum(map(len, listing.contents.values())) == 200
    assert "2/checkpoint is one of those with more than 250 bytes together" in warnings[0]
