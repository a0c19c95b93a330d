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
