"""The documents of the Compute Engine API, whole: https://cloud.google.com/compute/docs/reference/rest/v1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web

from tests.event_loops.thread import LoopThread
from tpuctl.sim.compute.holdings import Firewalls, HoldingsApi
from tpuctl.sim.compute.operations import Operations
from tpuctl.sim.compute.rest_api import Projects, application
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Binding, Policies
from tpuctl.sim.state import Database
from tpuctl.sim.token_server import project_number, service_account, stable_number

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")
OPEN = {"allowed": [{"IPProtocol": "tcp", "ports": ["8080"]}]}


class Compute:
    """The API alone, over plain HTTP, without any node."""

    def __init__(self, folder: Path) -> None:
        self.changed: list[str] = []
        """The projects whose metadata was set."""
        self.caller: Caller | None = None
        """Who calls, where roles are enforced."""
        self._database = Database(folder / "world.sqlite")
        self._thread = LoopThread()
        self.http = requests.Session()
        self.http.trust_env = False
        self.url = self._thread.start(self._serve())

    def __call__(self, path: str, body: object = None, *, status: int = 200, method: str = "") -> Any:
        """Call a method of a project and return its answer, or its error if that is the `status`."""
        verb = method or ("GET" if body is None else "POST")
        answer = self.http.request(verb, f"{self.url}/projects/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def close(self) -> None:
        self._thread.finish(self._runner.cleanup())
        self.http.close()
        self._database.close()

    @web.middleware
    async def _enter(self, request: web.Request, handler: Any) -> web.StreamResponse:
        set_caller(self.caller)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _serve(self) -> str:
        projects = Projects(self._database, self.changed.append)
        operations = Operations(self._database)
        holdings = HoldingsApi(self._database, operations)
        app = application(projects, operations, Firewalls(self._database), holdings)
        app.middlewares.append(self._enter)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/compute/v1"


@pytest.fixture
def compute(tmp_path: Path) -> Iterator[Compute]:
    with closing(Compute(tmp_path)) as api:
        yield api


def operation_document(compute: Compute, operation: Any, kind: str, target: str = "") -> dict[str, Any]:
    """Return what an operation is to be, with its own name and time."""
    name, time = operation["name"], operation["insertTime"]
    assert re.fullmatch(r"operation-\d{13}-[0-9a-f]{13}-[0-9a-f]{8}-[0-9a-f]{8}", name)
    assert TIME.fullmatch(time)
    return {
        "kind": "compute#operation",
        "id": str(stable_number(f"acme/{name}")),
        "name": name,
        "operationType": kind,
        "status": "DONE",
        "progress": 100,
        "user": service_account("acme"),
        "insertTime": time,
        "startTime": time,
        "endTime": time,
        "targetId": str(project_number("acme")),
        "targetLink": f"{compute.url}/projects/acme{target}",
        "selfLink": f"{compute.url}/projects/acme/global/operations/{name}",
    }


def test_a_project(compute: Compute) -> None:
    project = compute("acme")
    fingerprint = project["commonInstanceMetadata"].pop("fingerprint")
    assert re.fullmatch(r"[\w-]{11}=", fingerprint)
    assert project == {
        "kind": "compute#project",
        "id": str(stable_number("acme")),
        "name": "acme",
        "creationTimestamp": "2020-01-01T00:00:00.000-08:00",
        "commonInstanceMetadata": {"kind": "compute#metadata"},
        "defaultNetworkTier": "PREMIUM",
        "defaultServiceAccount": service_account("acme"),
        "selfLink": f"{compute.url}/projects/acme",
        "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
    }


@pytest.mark.parametrize("version", ["v1", "beta", "alpha"])
def test_a_link_has_the_version_that_was_asked(compute: Compute, version: str) -> None:
    compute.url = compute.url.replace("/v1", f"/{version}")
    assert compute("acme")["selfLink"] == f"{compute.url}/projects/acme"


def test_setting_metadata(compute: Compute) -> None:
    fingerprint = compute("acme")["commonInstanceMetadata"]["fingerprint"]
    items = [{"key": "a", "value": "1"}, {"key": "b"}]
    kind = "compute.projects.setCommonInstanceMetadata"
    operation = compute("acme/setCommonInstanceMetadata", {"items": items, "fingerprint": fingerprint})
    assert operation == operation_document(compute, operation, kind)
    assert compute(f"acme/global/operations/{operation['name']}") == operation
    assert compute(f"acme/global/operations/{operation['name']}/wait", method="POST") == operation
    stored = compute("acme")["commonInstanceMetadata"]
    assert stored["items"] == [{"key": "a", "value": "1"}, {"key": "b", "value": ""}]
    assert stored["fingerprint"] != fingerprint
    assert compute.changed == ["acme"]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"key": "a b", "value": ""}], "Invalid value for field 'metadata.items.key': 'a b'."),
        ([{"key": "a" * 129, "value": ""}], f"Invalid value for field 'metadata.items.key': '{'a' * 129}'."),
        ([{"key": "a", "value": "é" * (128 << 10) + "x"}], "The value of 'a' is longer than 262144 bytes."),
        ([{"key": "a", "value": 1}], "Invalid value for field 'metadata.items'."),
        ([{"value": "x"}], "Invalid JSON payload received."),
        ([{"key": "a"}, {"key": "a"}], "Invalid value for field 'metadata': duplicate keys."),
    ],
)
def test_metadata_that_is_refused(compute: Compute, items: list[Any], message: str) -> None:
    fingerprint = compute("acme")["commonInstanceMetadata"]["fingerprint"]
    body = {"items": items, "fingerprint": fingerprint}
    assert compute("acme/setCommonInstanceMetadata", body, status=400) == {
        "error": {
            "code": 400,
            "message": message,
            "errors": [{"message": message, "domain": "global", "reason": "invalid"}],
        }
    }
    largest = [{"key": "a" * 128, "value": "é" * (128 << 10)}]
    compute("acme/setCommonInstanceMetadata", {"items": largest, "fingerprint": fingerprint})


def test_stale_metadata(compute: Compute) -> None:
    error = compute("acme/setCommonInstanceMetadata", {"items": [], "fingerprint": "x"}, status=412)["error"]
    assert error["message"] == "Supplied fingerprint does not match current metadata fingerprint."
    assert error["errors"][0]["reason"] == "conditionNotMet"
    assert compute.changed == []


def test_lists_of_no_instances(compute: Compute) -> None:
    place = "projects/acme/zones/z/instances"
    assert compute("acme/zones/z/instances") == {
        "kind": "compute#instanceList",
        "id": place,
        "selfLink": f"{compute.url}/{place}",
    }
    assert compute("acme/aggregated/instances") == {
        "kind": "compute#instanceAggregatedList",
        "id": "projects/acme/aggregated/instances",
        "selfLink": f"{compute.url}/projects/acme/aggregated/instances",
        "items": {},
    }


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "zones/z/instances/i", "The resource 'projects/acme/zones/z/instances/i' was not found"),
        ("GET", "global/operations/o", "The resource 'projects/acme/global/operations/o' was not found"),
        ("POST", "global/operations/o/wait",
         "The resource 'projects/acme/global/operations/o' was not found"),
        ("GET", "global/networks/n", "The resource 'projects/acme/global/networks/n' was not found"),
        *(
            (method, "global/firewalls/f", "The resource 'projects/acme/global/firewalls/f' was not found")
            for method in ("GET", "PUT", "PATCH", "DELETE")
        ),
        ("GET", "zones/z/machineTypes",
         "The simulator has no GET /compute/v1/projects/acme/zones/z/machineTypes of Compute Engine"),
        ("DELETE", "zones/z/instances/i",
         "The simulator has no DELETE /compute/v1/projects/acme/zones/z/instances/i of Compute Engine"),
    ],
)  # fmt: skip
def test_what_is_not_there(compute: Compute, method: str, path: str, message: str) -> None:
    error = compute(f"acme/{path}", method=method, status=404)["error"]
    assert (error["message"], error["errors"][0]["reason"]) == (message, "notFound")


def firewall(compute: Compute, name: str, **fields: Any) -> dict[str, Any]:
    """Return what a rule of the firewall is to be."""
    return {
        "kind": "compute#firewall",
        "id": str(stable_number(f"acme/{name}")),
        "name": name,
        "network": f"{compute.url}/projects/acme/global/networks/default",
        "selfLink": f"{compute.url}/projects/acme/global/firewalls/{name}",
        "direction": "INGRESS",
        "disabled": False,
        **fields,
    }


def test_disks_and_addresses_are_made_listed_by_place_and_deleted(compute: Compute) -> None:
    for collection, place, kind in (
        ("disks", "zones/us-east1-d", "Disk"), ("addresses", "regions/us-east1", "Address"),
    ):  # fmt: skip
        path = f"{place}/{collection}"
        assert compute(f"acme/aggregated/{collection}")["items"] == {}
        operation = compute(f"acme/{path}", {"name": "a"})
        assert operation == operation_document(compute, operation, "insert", f"/{path}/a")
        there = f"The resource 'projects/acme/{path}/a' already exists"
        assert compute(f"acme/{path}", {"name": "a"}, status=409)["error"]["message"] == there
        compute(f"acme/{path}", {"name": "A"}, status=400)
        one = compute(f"acme/{path}/a")
        assert (one["name"], one["selfLink"]) == ("a", f"{compute.url}/projects/acme/{path}/a")
        listed = compute(f"acme/aggregated/{collection}")
        assert listed["kind"] == f"compute#{kind.lower()}AggregatedList"
        assert listed["items"] == {place: {collection: [one]}}
        assert compute(f"acme/{path}")["items"] == [one]
        assert "items" not in compute(f"other/{path}")
        assert compute(f"acme/{path}/a", method="DELETE")["operationType"] == "delete"
        gone = f"The resource 'projects/acme/{path}/a' was not found"
        assert compute(f"acme/{path}/a", status=404)["error"]["message"] == gone
        compute(f"acme/{path}/a", method="DELETE", status=404)


def test_the_rules_of_a_new_network(compute: Compute) -> None:
    """https://cloud.google.com/firewall/docs/firewalls#more_rules_default_vpc"""
    listed = compute("acme/global/firewalls")
    assert all(TIME.fullmatch(rule.pop("creationTimestamp")) for rule in listed["items"])
    assert listed == {
        "kind": "compute#firewallList",
        "id": "projects/acme/global/firewalls",
        "selfLink": f"{compute.url}/projects/acme/global/firewalls",
        "items": [
            firewall(
                compute, name, priority=65534, sourceRanges=[source],
                allowed=[{"IPProtocol": "tcp", "ports": [ports]}],
            )
            for name, source, ports in (
                ("default-allow-internal", "10.128.0.0/9", "0-65535"),
                ("default-allow-ssh", "0.0.0.0/0", "22"),
            )
        ],
    }  # fmt: skip


def test_a_rule_is_made_changed_and_deleted(compute: Compute) -> None:
    sent = {
        **OPEN,
        "name": "own",
        "network": "global/networks/mine",
        "kind": "x",
        "id": "7",
        "targetTags": ["a"],
    }
    operation = compute("acme/global/firewalls", sent)
    assert operation == operation_document(compute, operation, "insert", "/global/firewalls/own")
    rule = compute("acme/global/firewalls/own")
    assert TIME.fullmatch(rule.pop("creationTimestamp"))
    network = f"{compute.url}/projects/acme/global/networks/mine"
    own = firewall(compute, "own", priority=1000, targetTags=["a"], network=network, **OPEN)
    assert rule == own
    assert compute("acme/global/networks/mine") == {
        "kind": "compute#network",
        "name": "mine",
        "selfLink": network,
    }
    assert compute("acme/global/networks/default")["name"] == "default"
    renamed = {"priority": 5, "name": "other", "id": "7", "selfLink": "x"}
    patched = compute("acme/global/firewalls/own", renamed, method="PATCH")
    assert patched["operationType"] == "patch"
    assert without_time(compute("acme/global/firewalls/own")) == own | {"priority": 5}
    updated = compute("acme/global/firewalls/own", {"denied": [{"IPProtocol": "all"}]}, method="PUT")
    assert updated["operationType"] == "update"
    closed = firewall(compute, "own", priority=1000, denied=[{"IPProtocol": "all"}])
    assert without_time(compute("acme/global/firewalls/own")) == closed
    deleted = compute("acme/global/firewalls/own", method="DELETE")
    assert deleted == operation_document(compute, deleted, "delete", "/global/firewalls/own")
    assert len(compute("acme/global/firewalls")["items"]) == 2


def without_time(rule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in rule.items() if name != "creationTimestamp"}


@pytest.mark.parametrize(
    "text", ["name=own", 'name="own"', "(name = own)", "name eq own", '( name eq "own" )', "name = own "]
)
def test_a_filter_names_a_rule(compute: Compute, text: str) -> None:
    compute("acme/global/firewalls", {**OPEN, "name": "own"})
    compute("other/global/firewalls", {**OPEN, "name": "own"})
    (rule,) = compute(f"acme/global/firewalls?filter={text}")["items"]
    assert rule["name"] == "own"
    assert "items" not in compute("acme/global/firewalls?filter=name=none")


def test_other_filters_are_refused(compute: Compute) -> None:
    error = compute("acme/global/firewalls?filter=priority>3", status=400)["error"]
    assert (
        error["message"] == "Invalid value for field 'filter': 'priority>3'. The simulator knows name=NAME."
    )


SIDES = "Exactly one of 'allowed' and 'denied' must be specified for a firewall rule."


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"name": "own"}, SIDES),
        ({"name": "own", "allowed": [], "denied": []}, SIDES),
        ({**OPEN, "name": "own", "denied": [{"IPProtocol": "all"}]}, SIDES),
        ([], "Invalid JSON payload received."),
        *(
            (
                {**OPEN, "name": name},
                f"Invalid value for field 'resource.name': '{name}'. "
                "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'",
            )
            for name in ("", "A", "1a", "a-", "a_b", "a" * 64)
        ),
    ],
)
def test_a_rule_that_is_refused(compute: Compute, sent: Any, message: str) -> None:
    assert compute("acme/global/firewalls", sent, status=400)["error"]["message"] == message
    assert len(compute("acme/global/firewalls")["items"]) == 2


def test_names_of_rules_are_unique_in_a_project(compute: Compute) -> None:
    for name in ("a", "a" * 63, "a-1"):
        compute("acme/global/firewalls", {**OPEN, "name": name})
        error = compute("acme/global/firewalls", {**OPEN, "name": name}, status=409)["error"]
        assert (error["message"], error["errors"][0]["reason"]) == (
            f"The resource 'projects/acme/global/firewalls/{name}' already exists",
            "alreadyExists",
        )
    error = compute("acme/global/firewalls/a", {"allowed": []}, method="PATCH", status=400)["error"]
    assert error["message"] == SIDES


ADA, ROLE = "user:ada@example.com", "projects/acme/roles/custom"


@pytest.mark.parametrize(
    ("method", "path", "permission"),
    [
        ("GET", "", "compute.projects.get"),
        ("POST", "/setCommonInstanceMetadata", "compute.projects.setCommonInstanceMetadata"),
        ("GET", "/zones/z/instances", "compute.instances.list"),
        ("GET", "/aggregated/instances", "compute.instances.list"),
        ("GET", "/zones/z/instances/i", "compute.instances.get"),
        ("GET", "/global/operations/o", "compute.globalOperations.get"),
        ("POST", "/global/operations/o/wait", "compute.globalOperations.get"),
        ("GET", "/global/networks/default", "compute.networks.get"),
        ("GET", "/global/firewalls", "compute.firewalls.list"),
        ("POST", "/global/firewalls", "compute.firewalls.create"),
        ("GET", "/global/firewalls/default-allow-ssh", "compute.firewalls.get"),
        ("PUT", "/global/firewalls/default-allow-ssh", "compute.firewalls.update"),
        ("PATCH", "/global/firewalls/default-allow-ssh", "compute.firewalls.update"),
        ("DELETE", "/global/firewalls/none", "compute.firewalls.delete"),
    ],
)
def test_a_method_needs_its_permission(compute: Compute, method: str, path: str, permission: str) -> None:
    def called(granted: str, member: str = ADA) -> tuple[int, str, str]:
        policies = Policies(roles={ROLE: (granted,)})
        policies.projects["acme"].append(Binding(ROLE, (ADA,)))
        compute.caller = Caller(member, Access(policies, lambda _: None))
        answer = compute.http.request(method, f"{compute.url}/projects/acme{path}", json={}, timeout=60)
        error = answer.json().get("error", {"message": "", "errors": [{"reason": ""}]})
        return answer.status_code, error["message"], error["errors"][0]["reason"]

    assert called(permission)[0] not in (401, 403)
    message = f"Required '{permission}' permission for 'projects/acme'"
    assert called("compute.others.get") == (403, message, "forbidden")
    assert called(permission, member="") == (401, message, "required")
