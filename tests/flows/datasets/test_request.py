"""The request of an upload: one record for `data plan`, `data upload` and a worker elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from tests.flows.datasets.pets import PETS
from tpuctl.data.options import Options, TokenOptions
from tpuctl.data.plan import plan
from tpuctl.flows.datasets.plan import make_plan, open_plan
from tpuctl.flows.datasets.request import UploadRequest

REQUEST = UploadRequest(
    source="reviews.csv",
    ref=PETS,
    kind="csv",
    options=Options({"stars": "int"}, "label", (8, 6), TokenOptions("words", 4, 6, "text")),
    splits="train=3/4,test=1/4",
    hosts=4,
    shards=8,
    shard_size=64 << 20,
    seed=3,
    skip_bad=True,
    vocabulary=("[PAD]", "[UNK]"),
)
SMALLEST = UploadRequest(source="a", ref=PETS)


@pytest.mark.parametrize("request_", [REQUEST, SMALLEST], ids=["all fields", "defaults"])
def test_it_arrives_elsewhere_as_it_was(request_: UploadRequest) -> None:
    assert msgspec.json.decode(msgspec.json.encode(request_), type=UploadRequest) == request_
    assert pickle.loads(pickle.dumps(request_)) == request_


def test_its_plan_is_that_of_the_same_arguments(pictures: Path) -> None:
    request = UploadRequest(source=str(pictures), ref=PETS, splits="train=3/4,test=1/4", shards=2, seed=3)
    expected = plan(pictures, name="pets", splits="train=3/4,test=1/4", shards=2, seed=3)
    identities = [shard.identity for shard in make_plan(request).shards()]
    assert identities == [shard.identity for shard in expected.shards()]


def test_the_source_is_closed_when_the_block_ends(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    with open_plan(UploadRequest(source=str(pictures), ref=PETS)) as dataset_plan:
        monkeypatch.setattr(dataset_plan.source, "close", lambda: closed.append("source"))
        assert closed == []
    assert closed == ["source"]


def test_for_other_processes_the_path_is_absolute(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pictures.parent)
    fixed = UploadRequest(source="pictures", ref=PETS).fixed(("[PAD]",))
    assert (fixed.source, fixed.vocabulary) == (str(pictures), ("[PAD]",))


def test_what_is_not_said_is_one_host_no_bad_records_and_the_first_order() -> None:
    assert (SMALLEST.hosts, SMALLEST.seed, SMALLEST.skip_bad) == (1, 0, False)
    assert (SMALLEST.kind, SMALLEST.splits, SMALLEST.shards, SMALLEST.vocabulary) == (None, None, None, None)


@pytest.mark.parametrize(
    ("source", "is_in_bucket", "exists"),
    [
        ("gs://b/rows", True, True), ("gs:/b/rows", False, False), ("rows", False, True),
        ("none", False, False), ("folder", False, True),
    ],
)  # fmt: skip
def test_a_source_on_this_machine_is_looked_for(
    tmp_path: Path, source: str, is_in_bucket: bool, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").touch()
    (tmp_path / "folder").mkdir()
    request = UploadRequest(source=source, ref=PETS)
    assert (request.is_in_bucket, request.source_exists) == (is_in_bucket, exists)
    assert request.fixed(None).source == (source if is_in_bucket else str(tmp_path / source))
