"""Tests that methods without an implementation are refused, and the differences from Google Cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator

import grpc
import pytest
import requests

from tests.contract.sections import absent_json, absent_xml
from tpuctl.testing import Simulator

PARENT = "projects/sim-project/locations/europe-west4-a"
ABSENT_JSON = absent_json()
ABSENT_XML = absent_xml()
BODIES = {"POST": b"{}", "PUT": b"{}", "PATCH": b"{}"}


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    """A simulator with one object."""
    with Simulator() as started:
        url = f"{started.endpoints.storage}/upload/storage/v1/b/{started.endpoints.bucket}/o"
        requests.post(
            url, params={"uploadType": "media", "name": "o"}, data=b"x", timeout=60
        ).raise_for_status()
        yield started


def test_there_is_something_absent() -> None:
    assert len(ABSENT_JSON) > 20
    assert len(ABSENT_XML) > 10


@pytest.mark.parametrize(("method", "verb", "path"), ABSENT_JSON, ids=[method for method, *_ in ABSENT_JSON])
def test_the_json_api_refuses_what_it_does_not_have(
    sim: Simulator, method: str, verb: str, path: str
) -> None:
    where = path.replace("{bucket}", sim.endpoints.bucket).replace("{object}", "o")
    url = f"{sim.endpoints.storage}/storage/v1/{re.sub(r'{[^}]+}', 'x', where)}"
    answer = requests.request(verb, url, data=BODIES.get(verb), timeout=60)
    assert answer.status_code in (405, 501), f"{method}: {answer.status_code} {answer.text}"
    assert answer.json()["error"]["code"] == answer.status_code


@pytest.mark.parametrize("request_line", ABSENT_XML)
def test_the_xml_api_refuses_what_it_does_not_have(sim: Simulator, request_line: str) -> None:
    verb, kind, *subresource = request_line.split()
    path = {"service": "/", "bucket": f"/{sim.endpoints.bucket}", "object": f"/{sim.endpoints.bucket}/o"}[
        kind
    ]
    url = f"{sim.endpoints.storage}{path}{''.join(subresource)}"
    answer = requests.request(verb, url, data=BODIES.get(verb), timeout=60)
    assert answer.status_code in (405, 501), f"{request_line}: {answer.status_code} {answer.text}"


def test_what_the_json_api_never_had_is_not_found(sim: Simulator) -> None:
    assert requests.get(f"{sim.endpoints.storage}/storage/v1/nonsense", timeout=60).status_code == 404


def test_the_cloud_tpu_api_refuses_what_it_does_not_have(sim: Simulator) -> None:
    with grpc.insecure_channel(sim.endpoints.tpu_grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary("/google.cloud.tpu.v2.Tpu/ReimageNode")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=60)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    answer = requests.post(f"{sim.endpoints.tpu_rest}/v2/{PARENT}/nodes/n:reimage", json={}, timeout=60)
    assert answer.status_code == 404
    assert "There is no method" in answer.json()["error"]["message"]


def test_compute_engine_refuses_all_but_what_slices_need(sim: Simulator) -> None:
    url = f"{sim.endpoints.compute_rest}/compute/v1/projects/sim-project/zones/europe-west4-a/machineTypes"
    assert requests.get(url, timeout=60).status_code == 404


@pytest.mark.contract(
    "storage.buckets.setIamPolicy",
    client="REST",
    differs="Policies are stored and returned; `sim start --iam` enforces them.",
)
def test_a_policy_is_not_enforced(sim: Simulator) -> None:
    bucket = f"{sim.endpoints.storage}/storage/v1/b/{sim.endpoints.bucket}"
    nobody = {"bindings": [{"role": "roles/storage.objectViewer", "members": ["user:else@example.com"]}]}
    assert requests.put(f"{bucket}/iam", json=nobody, timeout=60).json()["bindings"] == nobody["bindings"]
    assert requests.get(f"{bucket}/o/o", timeout=60).status_code == 200


@pytest.mark.contract(
    "storage.buckets.testIamPermissions",
    client="REST",
    differs="Returns every requested permission as granted.",
)
def test_every_permission_is_there(sim: Simulator) -> None:
    url = f"{sim.endpoints.storage}/storage/v1/b/{sim.endpoints.bucket}/iam/testPermissions"
    permissions = {"permissions": "storage.objects.delete"}
    assert requests.get(url, params=permissions, timeout=60).json()["permissions"] == [
        "storage.objects.delete"
    ]


@pytest.mark.contract("storage.managedFolders.list", client="REST", differs="Always returns an empty list.")
def test_there_are_no_managed_folders(sim: Simulator) -> None:
    url = f"{sim.endpoints.storage}/storage/v1/b/{sim.endpoints.bucket}/managedFolders"
    assert "items" not in requests.get(url, timeout=60).json()


@pytest.mark.contract("v2alpha1.ListReservations", client="REST", differs="Always returns an empty list.")
def test_there_are_no_reservations(sim: Simulator) -> None:
    url = f"{sim.endpoints.tpu_rest}/v2alpha1/{PARENT}/reservations"
    assert requests.get(url, timeout=60).json() == {}
