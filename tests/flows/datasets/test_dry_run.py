"""A dry run: the requests that it lists are those that the simulator then gets, to the letter."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import requests

from tests.flows.datasets.pets import PETS, names, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.datasets import rm
from tpuctl.flows.datasets.upload import requests as upload_requests
from tpuctl.nodes import HttpRequest

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
