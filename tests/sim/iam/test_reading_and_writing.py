"""Requests that read one object to write another need both rights, by either API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests

from tests.running_simulator import RunningSimulator
from tpuctl.sim.iam.enforcement import enforcement

BUCKET, ROLE = "notes", "projects/sim-project/roles/writer"
WRITER, BOTH = "user:writer@example.com", "user:both@example.com"
COMPOSE = "<ComposeRequest><Component><Name>a</Name></Component></ComposeRequest>"


def state(folder: Path) -> Path:
    """Write an applied state: a bucket into which one member may write, and which another may read, too."""
    roles = (("roles/storage.objectCreator", WRITER), ("roles/storage.objectUser", BOTH))
    resources = [
        {"type": "google_storage_bucket", "values": {"name": BUCKET, "project": "sim-project"}},
        *(
            {
                "type": "google_storage_bucket_iam_member",
                "values": {"bucket": BUCKET, "role": role, "member": member},
            }
            for role, member in roles
        ),
    ]
    managed = [{"mode": "managed", **resource} for resource in resources]
    file = folder / "state.json"
    file.write_text(json.dumps({"values": {"root_module": {"resources": managed}}}))
    return file


@pytest.fixture(scope="module", params=[WRITER, BOTH])
def storage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The address of Cloud Storage for a member, and the member; there is an object `a`."""
    folder = tmp_path_factory.mktemp("iam")
    running = RunningSimulator(folder / "sim", iam=enforcement(state(folder), request.param))
    address = running.simulator.endpoints["storage"]
    requests.put(f"{address}/{BUCKET}/a", data=b"data", timeout=60).raise_for_status()
    yield address, request.param
    running.close()


@pytest.mark.parametrize(
    ("verb", "path", "headers", "body"),
    [
        ("PUT", f"/{BUCKET}/b1", {"x-goog-copy-source": f"/{BUCKET}/a"}, ""),
        ("PUT", f"/{BUCKET}/b2?compose", {}, COMPOSE),
        ("POST", f"/storage/v1/b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/b3", {}, "{}"),
        ("POST", f"/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/b4", {}, "{}"),
        ("POST", f"/storage/v1/b/{BUCKET}/o/b5/compose", {}, '{"sourceObjects": [{"name": "a"}]}'),
    ],
    ids=["copy by XML", "compose by XML", "copy", "rewrite", "compose"],
)
def test_who_may_only_write_cannot_copy_what_he_may_not_read(
    storage: tuple[str, str], verb: str, path: str, headers: Mapping[str, str], body: str
) -> None:
    address, member = storage
    answer = requests.request(verb, f"{address}{path}", headers=headers, data=body, timeout=60)
    assert answer.status_code == (200 if member == BOTH else 403), answer.text
    assert ("does not have storage.objects.get access" in answer.text) == (member == WRITER)
