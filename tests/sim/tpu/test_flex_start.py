"""Requests for flex-start: https://cloud.google.com/tpu/docs/request-using-flex-start."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.tpu.http_rules import check
from tpuctl.sim.world import ApiError

QUEUED = "CreateQueuedResource"
WEEK = 7 * 24 * 3600


def request(duration: object = "3600s", kind: str = "v5litepod-4", **fields: Any) -> dict[str, Any]:
    return {
        "provisioningModel": "FLEX_START",
        "runDuration": {"maxRunDuration": duration},
        "tpu": {"nodeSpec": [{"node": {"acceleratorType": kind}}]},
        **fields,
    }


def refusal(method: str, sent: dict[str, Any]) -> str:
    """Return the reason in the error; empty if there is none."""
    try:
        check(method, sent)
    except ApiError as error:
        code, message = int(error.status.code), error.status.message
        return (
            message.removeprefix("Cloud TPU received a bad request. ").partition(" [EID")[0]
            if code == 3
            else "?"
        )
    return ""


@pytest.mark.parametrize("kind", ["v5litepod-1", "v5litepod-256", "v6e-8"])
@pytest.mark.parametrize("duration", ["1s", "0.5s", "3600s", f"{WEEK}s"])
def test_a_run_of_up_to_a_week_is_accepted(kind: str, duration: str) -> None:
    assert refusal(QUEUED, request(duration, kind)) == ""


@pytest.mark.parametrize("duration", ["0s", "-1s", f"{WEEK + 1}s", "", None, "soon", 0])
def test_a_run_has_an_end_within_a_week(duration: object) -> None:
    reason = "run_duration.max_run_duration must be more than 0s and at most 604800s for FLEX_START"
    assert refusal(QUEUED, request(duration)) == reason
    assert refusal(QUEUED, request(runDuration=5)) == reason


@pytest.mark.parametrize("tier", ["spot", "guaranteed", "bestEffort", "reservationName"])
def test_no_other_tier_can_be_asked_for(tier: str) -> None:
    assert refusal(QUEUED, request(**{tier: {}})) == f"FLEX_START cannot be combined with {tier}"


@pytest.mark.parametrize("kind", ["v2-8", "v3-8", "v4-8", "v5p-8", "v9-8", ""])
def test_it_is_for_v5e_and_v6e_alone(kind: str) -> None:
    assert refusal(QUEUED, request(kind=kind)) == f"FLEX_START is not available for {kind}"
    second = {"nodeSpec": [{"node": {"acceleratorType": "v6e-8"}}, {"node": {"acceleratorType": kind}}]}
    assert refusal(QUEUED, request(tpu=second)) == f"FLEX_START is not available for {kind}"


def test_a_specification_of_another_shape_is_left_to_the_other_checks() -> None:
    assert refusal(QUEUED, request(tpu={"nodeSpec": {}})) == ""
    assert refusal(QUEUED, request(tpu={"nodeSpec": [5]})) == "FLEX_START is not available for "


def test_a_node_is_only_queued_for_it() -> None:
    sent = {"schedulingConfig": {"provisioningModel": "FLEX_START"}}
    assert refusal("CreateNode", sent) == "FLEX_START is only available through queued resources"
    assert refusal("UpdateNode", sent) == ""


def test_requests_of_other_models_are_left_alone() -> None:
    bad = request("0s", "v2-8", spot={}, provisioningModel="SPOT")
    assert refusal(QUEUED, bad) == ""
    assert refusal("CreateNode", request("0s")) == ""
    assert refusal("CreateNode", {"schedulingConfig": {"provisioningModel": "SPOT"}}) == ""
