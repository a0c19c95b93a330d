"""The first examples of a dataset, decoded, in the order of the shards."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.flows.datasets.pets import PETS, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.plan import plan
from tpuctl.data.tfrecord.framing import read_records
from tpuctl.errors import NotFoundError, UsageError
from tpuctl.flows.datasets import head as head_module
from tpuctl.flows.datasets.head import head, read_vocabulary


@pytest.fixture
def manifest(bucket: Bucket, tmp_path: Path) -> Manifest:
    """That of a table of ten rows, in two splits and four shards."""
    for split, numbers in (("train", range(8)), ("test", range(8, 10))):
        (tmp_path / "table" / split).mkdir(parents=True)
        rows = "".join(f"{number}\n" for number in numbers)
        (tmp_path / "table" / split / "rows.csv").write_text(f"number\n{rows}")
    return send(bucket, plan(tmp_path / "table", name=PETS.name, shards=2)).manifest


def numbers(bucket: Bucket, manifest: Manifest, split: str, count: int) -> list[int]:
    examples = head(bucket, manifest, split=split, count=count)
    assert {example.split for example in examples} <= {split or next(iter(manifest.splits))}
    return [int(example.values["number"][0]) for example in examples]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8])
def test_as_many_as_requested_are_read_from_shard_to_shard(
    bucket: Bucket, manifest: Manifest, count: int
) -> None:
    every = numbers(bucket, manifest, "train", 400)
    assert sorted(every) == list(range(8))
    assert numbers(bucket, manifest, "train", count) == every[:count]


def test_without_a_split_the_first_is_read(bucket: Bucket, manifest: Manifest) -> None:
    first = next(iter(manifest.splits))
    assert numbers(bucket, manifest, "", 400) == numbers(bucket, manifest, first, 400)
    assert sorted(numbers(bucket, manifest, "test", 400)) == [8, 9]


def test_a_shard_that_is_not_needed_is_not_read(
    bucket: Bucket, simulator: RunningSimulator, manifest: Manifest
) -> None:
    numbers(bucket, manifest, "train", 1)
    read = {event.resource for event in simulator.events.find(kind="request", what="*objects.get")}
    assert not [name for name in read if name.endswith("00001-of-00002")]


def test_a_split_that_is_not_there_names_those_that_are(bucket: Bucket, manifest: Manifest) -> None:
    with pytest.raises(UsageError, match="The dataset 'pets' has no split 'dev'") as missing:
        head(bucket, manifest, split="dev", count=1)
    assert missing.value.hint == f"One of {', '.join(manifest.splits)}."


def test_a_missing_shard_is_named(bucket: Bucket, manifest: Manifest) -> None:
    stored = bucket.stat(PETS.folder + "pets-train.tfrecord-00000-of-00002")
    assert stored
    bucket.remove(stored)
    with pytest.raises(NotFoundError, match=r"pets-train\.tfrecord-00000-of-00002 is missing") as missing:
        head(bucket, manifest, split="train", count=1)
    assert missing.value.hint == "See: tpuctl data verify pets"


def test_a_dataset_without_tokens_has_no_vocabulary(bucket: Bucket, manifest: Manifest) -> None:
    assert read_vocabulary(bucket, manifest) is None


LIMITS = "more than 268 MB or"


@pytest.mark.parametrize(
    ("most", "message", "hint"),
    [
        (0, f"The first example has {LIMITS} 0 values", "Read it with TensorFlow: tf.data.TFRecordDataset."),
        (
            1,
            f"2 examples of the dataset 'pets' have {LIMITS} 1 values",
            "Show fewer: tpuctl data head pets -n 1",
        ),
        (
            5,
            f"6 examples of the dataset 'pets' have {LIMITS} 5 values",
            "Show fewer: tpuctl data head pets -n 5",
        ),
    ],
)
def test_more_values_than_can_be_shown_are_refused(
    bucket: Bucket, manifest: Manifest, most: int, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "MOST_VALUES", most)
    with pytest.raises(UsageError) as refused:
        numbers(bucket, manifest, "train", 8)
    assert (refused.value.message, refused.value.hint) == (f"{message}: too much to show.", hint)
    if most:
        assert len(numbers(bucket, manifest, "train", most)) == most


@pytest.mark.parametrize("count", [2, 6])
def test_more_bytes_than_can_be_shown_are_refused(
    bucket: Bucket, manifest: Manifest, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [bucket.read(PETS.folder + entry.file) for entry in manifest.splits["train"].shards]
    sizes = [len(record) for data in shards for record in read_records(io.BytesIO(data), len(data))]
    monkeypatch.setattr(head_module, "MOST_BYTES", sum(sizes[:count]))
    assert len(numbers(bucket, manifest, "train", count)) == count
    monkeypatch.setattr(head_module, "MOST_BYTES", sum(sizes[:count]) - 1)
    words = f"^{count} examples of the dataset 'pets' have more than 0 MB or 16777216 values:"
    with pytest.raises(UsageError, match=words):
        numbers(bucket, manifest, "train", count)
