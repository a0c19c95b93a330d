"""The request of an upload: one record for `data plan`, `data upload` and a worker elsewhere.

A dry run: the requests that it lists are those that the simulator then gets, to the letter.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
import requests

from tests.flows.datasets.pets import PETS, names, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.data.options import Options, TokenOptions
from tpuctl.data.plan import plan
from tpuctl.flows.datasets import rm
from tpuctl.flows.datasets.plan import make_plan, open_plan
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.flows.datasets.traffic import traffic_warning
from tpuctl.flows.datasets.upload import requests as upload_requests
from tpuctl.nodes import HttpRequest

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


OWN = "sim-project-tpuctl"
"""The bucket of datasets."""


class TestTraffic:
    """Of a source in another location than the bucket of datasets: Google bills the bytes that leave it."""

    @pytest.fixture
    def cloud(self, cloud: Cloud) -> Cloud:
        """Clients of a project that has photos in America, and datasets in Europe."""
        client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)
        client.create_bucket("photos", location="us-east1")
        client.create_bucket("scans", location="europe-west4")
        client.close()
        return cloud

    def warning(self, cloud: Cloud, source: str) -> str:
        request = UploadRequest(source=source, ref=PETS)
        return traffic_warning(cloud, request, "3.0 GB")

    def test_a_source_in_another_region_is_named_with_its_size(self, cloud: Cloud) -> None:
        assert self.warning(cloud, "gs://photos/pets") == (
            f"The bucket gs://photos is in us-east1, and gs://{OWN} in europe-west4:"
            " Google bills the 3.0 GB that leave us-east1 as traffic."
        )

    @pytest.mark.parametrize("source", ["gs://scans/pets", f"gs://{OWN}/pets"])
    def test_one_in_the_same_region_costs_nothing(self, cloud: Cloud, source: str) -> None:
        assert self.warning(cloud, source) == ""

    @pytest.mark.parametrize("source", ["pets", "/home/ada/pets", f"gs://{OWN}/pets"])
    def test_for_a_source_that_is_no_other_bucket_nobody_is_asked_about_one(
        self, cloud: Cloud, simulator: RunningSimulator, source: str
    ) -> None:
        self.warning(cloud, source)
        asked = simulator.events.find(kind="request", service="storage", what="*buckets.get")
        assert len(asked) == source.startswith("gs://"), "the bucket of datasets alone"

    def test_without_permission_to_look_nothing_is_known(
        self, cloud: Cloud, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add("gcs-error", status="403", method="storage.buckets.get")
        assert self.warning(cloud, "gs://photos/pets") == ""

    @pytest.mark.usefixtures("home")
    def test_without_a_bucket_for_datasets_nothing_is_known(self) -> None:
        clients = connect(load({"target": "gcp", "project": "p", "zone": "europe-west4-a"}))
        assert self.warning(clients, "gs://photos/pets") == ""
        clients.close()


PLACEHOLDERS = (
    (r"GenerationMatch=\d{9,}", "GenerationMatch=GENERATION"),
    (r"(?<=uploadType=resumable)&\S*upload_id=[^&]+", "&upload_id=UPLOAD_ID"),
    (r"[0-9a-f]{64}(?=\.moves\.json)", "MANIFEST_SHA256"),
)
"""What only the service or the conversion knows (a session's address is the service's) -> a placeholder."""


@pytest.fixture
def sent(bucket: Bucket) -> list[HttpRequest]:
    """The requests that the bucket's client really sends from here on."""
    recorded: list[HttpRequest] = []

    def record(response: requests.Response, **_options: object) -> None:
        request = response.request
        if request.method != "GET":
            recorded.append(HttpRequest(str(request.method), str(request.url), body(request)))

    bucket._client.session.hooks["response"].append(record)
    return recorded


def body(request: requests.PreparedRequest) -> dict[str, str] | None:
    """Return the name in the metadata of an upload, as a dry run shows it."""
    data = request.body if request.method == "POST" and isinstance(request.body, bytes) else b""
    metadata = re.search(rb'\{"name": "[^"]*"', data)
    return json.loads(metadata[0] + b"}") if metadata else None


def comparable(listed: list[HttpRequest]) -> Counter[tuple[str, str, str]]:
    """Count the requests, with placeholders for what no dry run can know."""
    return Counter((request.method, hidden(request.url), hidden(str(request.body))) for request in listed)


def hidden(text: str) -> str:
    for pattern, placeholder in PLACEHOLDERS:
        text = re.sub(pattern, placeholder, text)
    return text


@pytest.mark.daily
def test_an_upload_sends_the_requests_of_its_dry_run(
    bucket: Bucket, sent: list[HttpRequest], pictures: Path
) -> None:
    planned = upload_requests(bucket, plan_pets(pictures))
    assert names(bucket) == []
    assert sent == []
    send(bucket, plan_pets(pictures))
    assert comparable(planned) == comparable(sent)


def operations(listed: list[HttpRequest], bucket: str) -> Iterator[tuple[str, str]]:
    """Yield the operations that requests come to in the service, as its log names them."""
    name = ""
    for request in listed:
        path = urlsplit(request.url).path
        source, _, target = path.partition("/moveTo/o/")
        copied = path.partition(f"/copyTo/b/{bucket}/o/")[2]
        if isinstance(request.body, dict):
            name = request.body["name"]
        if target:
            yield "objects.delete", f"{bucket}/{unquote(source.rpartition('/o/')[2])}"
        if request.method == "DELETE":
            yield "objects.delete", f"{bucket}/{unquote(path.rpartition('/o/')[2])}"
        else:
            yield "objects.create", f"{bucket}/{unquote(target or copied) or name}"


def test_the_simulator_notes_the_operations_of_the_dry_run(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    planned = upload_requests(bucket, plan_pets(pictures))
    assert list(simulator.events.find(kind="request", service="storage")) == []
    send(bucket, plan_pets(pictures))
    changes = Counter(
        (event.what, hidden(event.resource))
        for event in simulator.events.find(kind="request", service="storage")
        if event.what not in {"objects.get", "objects.list"}
    )
    assert Counter(operations(planned, bucket.name)) == changes


def test_a_removal_sends_the_requests_of_its_dry_run(
    bucket: Bucket, sent: list[HttpRequest], pictures: Path
) -> None:
    """Their generations are known, so nothing stands for them."""
    send(bucket, plan_pets(pictures))
    planned = rm.plan_removal(bucket, PETS)
    listed = rm.requests(bucket, planned)
    assert len(names(bucket)) == len(listed)
    sent.clear()
    rm.remove(bucket, planned)
    assert Counter(map(str, listed)) == Counter(map(str, sent))
    assert listed[0].url.endswith(f"ifGenerationMatch={planned.objects[0].generation}&prettyPrint=false")
