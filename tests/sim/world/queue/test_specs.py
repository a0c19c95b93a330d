"""What a queued resource may ask for: its nodes, their tier, and when it is valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tpuctl.sim.world.api_errors import ApiError
from tpuctl.sim.world.queue import checked, validity

ZONE = "projects/p/locations/europe-west4-a"
NODE = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
CONFIG = {"type": "V3", "topology": "2x2"}
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()


def nodes(*specs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the fields of each node that a queued resource `q` asks for, by its id."""
    sent = {"tpu": {"nodeSpec": [{"parent": ZONE, "node": NODE, **spec} for spec in specs]}, **fields}
    return {name.removeprefix(f"{ZONE}/nodes/"): node for name, node in checked(ZONE, "q", sent)[1].items()}


def refusal(*specs: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as raised:
        nodes(*specs)
    assert int(raised.value.status.code) == 3
    return raised.value.status.message


def several(count: int, **fields: Any) -> dict[str, Any]:
    return {"multisliceParams": {"nodeCount": count, **fields}}


@pytest.mark.parametrize(
    ("specs", "identifiers"),
    [
        ([{"nodeId": "n"}], ["n"]),
        ([{"nodeId": "n"}, {"nodeId": "m"}], ["n", "m"]),
        ([several(2)], ["q-0", "q-1"]),
        ([several(3, nodeIdPrefix="n")], ["n-0", "n-1", "n-2"]),
        ([several(256)], [f"q-{number}" for number in range(256)]),
        ([several(11, nodeIdPrefix="a" * 60)], ["a" * 60 + f"-{number}" for number in range(11)]),
    ],
)
def test_nodes_have_their_ids(specs: list[dict[str, Any]], identifiers: list[str]) -> None:
    assert list(nodes(*specs)) == identifiers


def test_a_node_has_its_type_and_topology() -> None:
    spec, requested = checked(
        ZONE, "q", {"tpu": {"nodeSpec": [{"parent": ZONE, "nodeId": "n", "node": NODE}]}}
    )
    node = {**NODE, "acceleratorConfig": CONFIG}
    assert requested == {f"{ZONE}/nodes/n": node}
    assert spec == {"tpu": {"nodeSpec": [{"parent": ZONE, "nodeId": "n", "node": node}]}}


EITHER = "node_spec needs either a node_id or the parameters of several nodes"


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        ([], "a queued resource must have a node_spec"),
        ([{}], EITHER),
        ([{"nodeId": "n", **several(2)}], EITHER),
        ([several(1)], "node_count must be greater than 1"),
        ([several(-2)], "node_count must be greater than 1"),
        ([{"multisliceParams": {"nodeIdPrefix": "n"}}], "node_count must be greater than 1"),
        ([several(257)], "a queued resource has 256 nodes at most"),
        ([several(255), {"nodeId": "n"}, {"nodeId": "m"}], "a queued resource has 256 nodes at most"),
        ([{"nodeId": "N"}], "Invalid node ID 'N'"),
        ([several(2, nodeIdPrefix="N")], "Invalid node ID 'N-1'"),
        ([several(12, nodeIdPrefix="a" * 61)], f"Invalid node ID '{'a' * 61}-11'"),
        ([{"parent": f"{ZONE}x", "nodeId": "n"}], f"node_spec.parent must be {ZONE}"),
        ([{"nodeId": "n", "node": {**NODE, "acceleratorType": "v4-8"}}], "v4-8 was not found in zone"),
        ([{"nodeId": "n", "node": {**NODE, "runtimeVersion": "x"}}], "cannot be \"x\""),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for(specs: list[dict[str, Any]], reason: str) -> None:
    assert reason in refusal(*specs)


@pytest.mark.parametrize(
    ("fields", "scheduling"),
    [
        ({}, None),
        ({"guaranteed": {}}, None),
        ({"spot": {}}, {"spot": True}),
        ({"bestEffort": {}}, {"preemptible": True}),
        ({"guaranteed": {"reserved": True}}, {"reserved": True}),
        ({"guaranteed": {"reserved": False}}, None),
        ({"reservationName": "r"}, {"reserved": True}),
        ({"reservationName": "r", "spot": {}}, {"spot": True, "reserved": True}),
    ],
)
def test_the_tier_is_in_the_scheduling_of_its_nodes(
    fields: dict[str, Any], scheduling: dict[str, bool] | None
) -> None:
    assert nodes({"nodeId": "n"}, **fields)["n"].get("schedulingConfig") == scheduling


def test_the_tier_comes_beside_a_nodes_own_scheduling() -> None:
    node = {**NODE, "schedulingConfig": {"reserved": False, "preemptible": True}}
    assert nodes({"nodeId": "n", "node": node}, spot={})["n"]["schedulingConfig"] == {
        "reserved": False,
        "preemptible": True,
        "spot": True,
    }


@pytest.mark.parametrize(
    ("policy", "after", "until"),
    [
        ({}, None, None),
        ({"validUntilDuration": "3600s"}, None, 3600),
        ({"validUntilDuration": "0.5s"}, None, 0.5),
        ({"validUntilTime": "2026-01-31T12:00:01Z"}, None, 1),
        ({"validUntilTime": "2026-01-31T12:00:01.25Z"}, None, 1.25),
        ({"validAfterDuration": "60s"}, 60, None),
        ({"validAfterTime": "2026-01-31T11:00:00Z"}, -3600, None),
        ({"validAfterDuration": "60s", "validUntilDuration": "61s"}, 60, 61),
        (
            {"validInterval": {"startTime": "2026-01-31T12:01:00Z", "endTime": "2026-01-31T12:02:00Z"}},
            60,
            120,
        ),
    ],
)
def test_a_request_is_valid_for_a_time(
    policy: dict[str, Any], after: float | None, until: float | None
) -> None:
    moments = validity({"queueingPolicy": policy}, NOW)
    assert moments == (None if after is None else NOW + after, None if until is None else NOW + until)


@pytest.mark.parametrize(
    "policy",
    [
        {"validUntilDuration": "0s"},
        {"validUntilDuration": "-1s"},
        {"validUntilTime": "2026-01-31T12:00:00Z"},
        {"validAfterDuration": "60s", "validUntilDuration": "60s"},
        {"validAfterDuration": "60s", "validUntilDuration": "59s"},
        {"validInterval": {"startTime": "2026-01-31T12:02:00Z", "endTime": "2026-01-31T12:01:00Z"}},
    ],
)
def test_a_request_has_some_time(policy: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="queueing_policy leaves no time"):
        validity({"queueingPolicy": policy}, NOW)
