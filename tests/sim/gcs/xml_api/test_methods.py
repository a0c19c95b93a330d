"""Which methods a request to the XML API counts as: roles are checked, and faults match, by their names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from contextvars import copy_context
from pathlib import Path

import pytest
import requests
from aiohttp.test_utils import make_mocked_request

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.uploads import ResumableUploads
from tpuctl.sim.gcs.xml_api.routes import XmlApi
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Policies

OTHER = "acme-other"
COPY = {"x-goog-copy-source": f"/{OTHER}/from/there"}
PROJECT_HEADER = {"x-goog-project-id": PROJECT}
Headers = Mapping[str, str]
Call = tuple[str, str]


@pytest.fixture
def upload(gcs: RunningGcs, http: requests.Session) -> str:
    """The id of a multipart upload of `a`; the source of a copy is there."""
    gcs.server.store.ensure_bucket(OTHER, PROJECT)
    http.put(f"{gcs.url}/{OTHER}/from/there", data=b"data")
    http.put(f"{gcs.url}/{BUCKET}/a", data=b"data")
    started = http.post(f"{gcs.url}/{BUCKET}/a?uploads").text
    return started.partition("<UploadId>")[2].partition("<")[0]


@pytest.mark.parametrize(
    ("verb", "path", "headers", "calls"),
    [
        ("GET", "", PROJECT_HEADER, [("buckets.list", PROJECT)]),
        ("PUT", "acme-new", PROJECT_HEADER, [("buckets.create", "acme-new")]),
        ("HEAD", OTHER, {}, [("buckets.get", OTHER)]),
        ("DELETE", OTHER, {}, [("buckets.delete", OTHER)]),
        ("GET", BUCKET, {}, [("objects.list", BUCKET)]),
        ("GET", f"{BUCKET}?versions", {}, [("objects.list", BUCKET)]),
        ("GET", f"{BUCKET}?uploads", {}, [("multipartUploads.list", BUCKET)]),
        ("GET", f"{BUCKET}/a", {}, [("objects.get", f"{BUCKET}/a")]),
        ("HEAD", f"{BUCKET}/a", {}, [("objects.get", f"{BUCKET}/a")]),
        ("PUT", f"{BUCKET}/b", {}, [("objects.create", f"{BUCKET}/b")]),
        ("PUT", f"{BUCKET}/b", COPY, [
            ("objects.get", f"{OTHER}/from/there"), ("objects.create", f"{BUCKET}/b"),
        ]),
        ("PUT", f"{BUCKET}/b?compose", {}, [("objects.create", f"{BUCKET}/b")]),
        ("POST", f"{BUCKET}/b", {"x-goog-resumable": "start"}, [("objects.create", f"{BUCKET}/b")]),
        ("DELETE", f"{BUCKET}/a", {}, [("objects.delete", f"{BUCKET}/a")]),
        ("POST", f"{BUCKET}/b?uploads", {}, [("multipartUploads.create", f"{BUCKET}/b")]),
        ("PUT", f"{BUCKET}/a?partNumber=1&uploadId=ID", {}, [("objects.create", f"{BUCKET}/a")]),
        ("POST", f"{BUCKET}/a?uploadId=ID", {}, [("objects.create", f"{BUCKET}/a")]),
        ("GET", f"{BUCKET}/a?uploadId=ID", {}, [("multipartUploads.listParts", f"{BUCKET}/a")]),
        ("DELETE", f"{BUCKET}/a?uploadId=ID", {}, [("multipartUploads.abort", f"{BUCKET}/a")]),
    ],
)  # fmt: skip
def test_a_request_is_recorded_as_methods_on_resources(
    gcs: RunningGcs, http: requests.Session, upload: str, verb: str, path: str, headers: Headers,
    calls: list[Call],
) -> None:  # fmt: skip
    gcs.faults.events = events = Events()
    body = b"" if verb in ("PUT", "POST") else None
    http.request(verb, f"{gcs.url}/{path.replace('ID', upload)}", headers=headers, data=body)
    assert [(event.what, event.resource) for event in events.find(kind="request")] == calls


@pytest.mark.parametrize(
    "name",
    ["acl", "billing", "cors", "encryption", "lifecycle", "logging", "policy", "retention", "storageClass",
     "tagging", "website"],
)  # fmt: skip
@pytest.mark.parametrize("path", [BUCKET, f"{BUCKET}/a"])
def test_what_the_simulator_has_not_is_said_and_changes_nothing(
    gcs: RunningGcs, http: requests.Session, upload: str, path: str, name: str
) -> None:
    """A request for the ACL of an object is not one for its bytes, nor does it replace them."""
    for verb in ("GET", "PUT", "DELETE"):
        answer = http.request(verb, f"{gcs.url}/{path}?{name}", data=b"other" if verb == "PUT" else None)
        assert (answer.status_code, "use the JSON API" in answer.text) == (501, True)
    assert http.get(f"{gcs.url}/{BUCKET}/a").content == b"data"


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("PUT", f"{BUCKET}?versions"), ("DELETE", f"{BUCKET}?uploads"), ("PUT", f"{BUCKET}?location"),
        ("PUT", f"{BUCKET}?versioning"), ("GET", f"{BUCKET}/a?compose"), ("GET", f"{BUCKET}/a?uploads"),
        ("POST", f"{BUCKET}/a"), ("POST", BUCKET), ("DELETE", ""),
    ],
)  # fmt: skip
def test_a_verb_that_a_resource_does_not_have_is_refused_and_changes_nothing(
    gcs: RunningGcs, http: requests.Session, upload: str, verb: str, path: str
) -> None:
    assert http.request(verb, f"{gcs.url}/{path}").status_code == 405
    assert http.get(f"{gcs.url}/{BUCKET}/a").content == b"data"


@pytest.mark.parametrize("name", ["location", "versioning"])
def test_who_may_not_see_a_bucket_does_not_see_its_settings(tmp_path: Path, name: str) -> None:
    """https://cloud.google.com/storage/docs/access-control/iam-xml"""
    faults = FaultRegistry()
    with closing(Store(tmp_path)) as store:
        store.create_bucket(BUCKET, PROJECT)
        api = XmlApi(store, faults, ResumableUploads(store, faults), None)
        access = Access(Policies(), lambda bucket: (PROJECT, {}))

        def ask(caller: Caller | None) -> int:
            set_caller(caller)
            request = make_mocked_request("GET", f"/{BUCKET}?{name}")
            return asyncio.run(api.handle(request)).status

        assert copy_context().run(ask, None) == 200
        with pytest.raises(GcsError, match=r"does not have storage\.buckets\.get access") as raised:
            copy_context().run(ask, Caller("user:ada@example.com", access))
    assert raised.value.status == 403
