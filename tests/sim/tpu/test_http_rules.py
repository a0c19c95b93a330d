"""From an HTTP request to a message of the official client: paths, queries and bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tpuctl.sim.tpu.http_rules import Route, routes
from tpuctl.sim.world import ApiError

ZONE = "projects/p/locations/z"
V1 = {
    "GetLocation",
    "ListLocations",
    "GetAcceleratorType",
    "ListAcceleratorTypes",
    "GetOperation",
    "ListOperations",
}
ALPHA = {
    "SimulateMaintenanceEvent": ("POST", f"{ZONE}/nodes/n:simulateMaintenanceEvent"),
    "PerformMaintenance": ("POST", f"{ZONE}/nodes/n:performMaintenance"),
    "PerformMaintenanceQueuedResource": (
        "POST",
        f"{ZONE}/queuedResources/q:performMaintenanceQueuedResource",
    ),
    "ListReservations": ("GET", f"{ZONE}/reservations"),
}


def route(method: str, version: str = "v2") -> Route:
    return next(route for route in routes() if (route.method, route.version) == (method, version))


def message(
    method: str, path: str, query: dict[str, list[str]] | None = None, body: Any = None, version: str = "v2"
) -> dict[str, Any]:
    """Return the request message as JSON for a path below the version."""
    rule = route(method, version)
    match = rule.path.fullmatch(f"/{version}/{path}")
    assert match is not None, rule.path
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return MessageToDict(rule.message(match.groupdict(), query or {}, sent))


def refusal(*request: Any, **options: Any) -> str:
    with pytest.raises(ApiError) as raised:
        message(*request, **options)
    return f"{int(raised.value.status.code)} {raised.value.status.message}"


def test_the_methods_that_gcloud_calls_in_v1_are_served_there() -> None:
    def versions(rule: Route) -> set[str]:
        path = rule.uri.replace("{name=", "").replace("{parent=", "").replace("}", "").replace("*", "x")
        path = path.replace("{node.name=", "")
        return {v for v in ("v1", "v2", "v2alpha1") if rule.path.fullmatch(path.replace("/v2/", f"/{v}/"))}

    for rule in routes():
        if rule.version == "v2alpha1":
            assert versions(rule) == {"v2alpha1"}, rule
        else:
            assert versions(rule) == ({"v1", "v2"} if rule.method in V1 else {"v2"}), rule
    assert {rule.method for rule in routes()} >= V1


def test_v2alpha1_has_methods_of_its_own() -> None:
    assert {rule.method for rule in routes() if rule.version == "v2"}.isdisjoint(ALPHA)
    for method, (verb, path) in ALPHA.items():
        rule = route(method, "v2alpha1")
        assert (rule.verb, rule.body) == (verb, "*" if verb == "POST" else "")
        name = "parent" if verb == "GET" else "name"
        assert message(method, path, version="v2alpha1") == {
            name: path.partition(":")[0].removesuffix("/reservations")
        }


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GetNode", f"{ZONE}/nodes/n", {}, {"name": f"{ZONE}/nodes/n"}),
        ("ListNodes", f"{ZONE}/nodes", {"pageSize": ["5"], "page_token": ["t"]},
         {"parent": ZONE, "pageSize": 5, "pageToken": "t"}),
        ("ListNodes", f"{ZONE}/nodes", {"pageSize": ["5", "7"]}, {"parent": ZONE, "pageSize": 7}),
        ("DeleteQueuedResource", f"{ZONE}/queuedResources/q", {"force": ["True"]},
         {"name": f"{ZONE}/queuedResources/q", "force": True}),
        ("DeleteQueuedResource", f"{ZONE}/queuedResources/q", {"force": ["false"]},
         {"name": f"{ZONE}/queuedResources/q"}),
        *(
            ("GetNode", f"{ZONE}/nodes/n", {name: ["x"]}, {"name": f"{ZONE}/nodes/n"})
            for name in ("alt", "access_token", "callback", "fields", "key", "oauth_token", "prettyPrint",
                         "quotaUser", "uploadType", "upload_protocol", "$alt", "$.xgafv")
        ),
    ],
)  # fmt: skip
def test_a_message_is_read_from_path_and_query(
    method: str, path: str, query: dict[str, list[str]], expected: dict[str, Any]
) -> None:
    assert message(method, path, query) == expected


@pytest.mark.parametrize("mask", ["labels,network_config", "labels,networkConfig"])
def test_a_mask_has_either_spelling(mask: str) -> None:
    sent = message("UpdateNode", f"{ZONE}/nodes/n", {"updateMask": [mask]}, {"labels": {"a": "b"}})
    assert sent == {
        "node": {"name": f"{ZONE}/nodes/n", "labels": {"a": "b"}},
        "updateMask": "labels,networkConfig",
    }


def test_a_body_is_a_field_or_the_whole_request() -> None:
    node = {"acceleratorType": "v3-8"}
    assert message("CreateNode", f"{ZONE}/nodes", {"nodeId": ["n"]}, node) == {
        "parent": ZONE,
        "nodeId": "n",
        "node": node,
    }
    assert message(
        "CreateNode", f"{ZONE}/nodes", {"node.acceleratorType": ["v2-8"]}, {"description": "d"}
    ) == {
        "parent": ZONE,
        "node": {"acceleratorType": "v2-8", "description": "d"},
    }
    assert message("StopNode", f"{ZONE}/nodes/n:stop", body={}) == {"name": f"{ZONE}/nodes/n"}
    assert message("StopNode", f"{ZONE}/nodes/n:stop") == {"name": f"{ZONE}/nodes/n"}


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "text"),
    [
        ("GetNode", f"{ZONE}/nodes/n", {"colour": ["red"]}, None,
         'Unknown name "colour": Cannot bind query parameter.'),
        ("CreateNode", f"{ZONE}/nodes", {"node.colour": ["red"]}, {},
         'Unknown name "node.colour": Cannot bind query parameter.'),
        ("CreateNode", f"{ZONE}/nodes", {"nodeId.x": ["red"]}, {},
         'Unknown name "nodeId.x": Cannot bind query parameter.'),
        ("StopNode", f"{ZONE}/nodes/n:stop", {}, b"[]", "Root element must be a message."),
        ("StopNode", f"{ZONE}/nodes/n:stop", {}, b"{", "Expecting property name"),
        ("CreateNode", f"{ZONE}/nodes", {"node.schedulingConfig.spot": ["true"]}, {"schedulingConfig": 5},
         "schedulingConfig is not a message."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    method: str, path: str, query: dict[str, list[str]], body: Any, text: str
) -> None:
    refused = refusal(method, path, query, body)
    assert refused.startswith("3 Invalid JSON payload received. ")
    assert text in refused


def test_fields_of_gcloud_that_the_client_lacks_are_accepted_where_they_change_nothing() -> None:
    path = f"{ZONE}/queuedResources"
    for model in ("STANDARD", "SPOT", None):
        sent = message("CreateQueuedResource", path, {}, {"provisioningModel": model}, version="v2alpha1")
        assert sent == {"parent": ZONE, "queuedResource": {}}
    assert "Unknown name" in refusal("CreateQueuedResource", path, {}, {"provisioningModel": "SPOT"})
    refused = refusal("CreateQueuedResource", path, {}, {"provisioningModel": "MAGIC"}, version="v2alpha1")
    assert refused == "12 The simulator does not know provisioningModel MAGIC yet."
