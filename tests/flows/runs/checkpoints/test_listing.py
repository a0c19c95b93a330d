"""A bucket that somebody has filled with checkpoints is read in little memory, and each name a few times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests.flows.runs.checkpoints.test_files import FOLDER, listing_of
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs import checkpoints
from tpuctl.flows.runs import checkpoints as module
from tpuctl.flows.runs.checkpoints import READERS, Listing, checkpoints_in

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
