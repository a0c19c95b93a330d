"""Errors of the Cloud TPU API, built as its client builds them, and as the simulator sends them over gRPC."""

from __future__ import annotations

import grpc
import pytest
from google.api_core import exceptions as google

from tests.cloud.test_error_mapping import raised
from tests.cloud.tpu.test_client import NODE, REQUEST, ZONE, wait
from tests.running_simulator import RunningSimulator
from tpuctl import errors
from tpuctl.cloud.error_mapping import EVERY_SERVICE, Failure, explain
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.cloud.tpu.error_mapping import SERVICE, RateLimitError
from tpuctl.nodes import CreateNode
from tpuctl.sim.faults import grpc_fault

STOCKOUT = 'There is no more capacity in the zone "europe-west4-a"'
QUOTA = "Quota limit 'TPUV3' has been exceeded. Limit: 8 in zone europe-west4-a."

GRPC = [
    (grpc.StatusCode.INVALID_ARGUMENT, "bad", errors.UsageError),
    (grpc.StatusCode.INVALID_ARGUMENT, "not supported while in state PREEMPTED", errors.PreemptedError),
    (grpc.StatusCode.DEADLINE_EXCEEDED, "late", errors.DeadlineError),
    (grpc.StatusCode.NOT_FOUND, "gone", errors.NotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, "there", errors.ConflictError),
    (grpc.StatusCode.PERMISSION_DENIED, "no", errors.ConfigError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, STOCKOUT, errors.StockoutError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, QUOTA, errors.QuotaError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit 'Read requests per minute'", RateLimitError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit 'Read requests per 100 seconds'", RateLimitError),
    (grpc.StatusCode.FAILED_PRECONDITION, "state STOPPED", errors.StateError),
    (grpc.StatusCode.FAILED_PRECONDITION, "state PREEMPTED", errors.PreemptedError),
    (grpc.StatusCode.FAILED_PRECONDITION, "Insufficient reserved capacity.", errors.StockoutError),
    (grpc.StatusCode.ABORTED, "changed", errors.ConflictError),
    (grpc.StatusCode.UNAVAILABLE, "down", errors.DeadlineError),
    (grpc.StatusCode.UNAUTHENTICATED, "who", errors.ConfigError),
    (grpc.StatusCode.INTERNAL, "oops", errors.ServiceError),
    (grpc.StatusCode.UNKNOWN, "oops", errors.ServiceError),
    (grpc.StatusCode.CANCELLED, "oops", errors.ServiceError),
    (grpc.StatusCode.UNIMPLEMENTED, "oops", errors.ServiceError),
    (grpc.StatusCode.DATA_LOSS, "oops", errors.ServiceError),
]


@pytest.mark.parametrize(
    ("status", "message", "ours"), GRPC, ids=lambda parameter: getattr(parameter, "name", "")
)
def test_a_grpc_status_becomes_ours(status: grpc.StatusCode, message: str, ours: type) -> None:
    error = google.from_grpc_status(status, message)
    assert type(raised(error, SERVICE)) is ours


def test_no_row_is_without_a_test() -> None:
    codes = {code for row in (*EVERY_SERVICE, *SERVICE.rows) for code in row.codes}
    assert codes <= {int(status.value[0]) for status, *_ in GRPC}


def test_a_reason_decides_before_the_text() -> None:
    disabled = explain(Failure(SERVICE, "X", 7, "anything", "SERVICE_DISABLED"))
    assert disabled.message == "An API that X needs is not enabled in the project: anything"
    assert "gcloud services enable tpu.googleapis.com" in disabled.hint
    wrong_zone = explain(Failure(SERVICE, "X", 7, "anything", "LOCATION_POLICY_VIOLATED"))
    assert "does not exist" in wrong_zone.hint


class TestThroughTheApi:
    """What the simulator sends over gRPC, with its details."""

    @pytest.mark.parametrize(
        ("kind", "fields", "ours", "words"),
        [
            ("stockout", {}, errors.StockoutError, "no more capacity"),
            ("stockout", {"reserved": True}, errors.StockoutError, "reserved capacity"),
            (
                "failed-operation",
                {
                    "code": "RESOURCE_EXHAUSTED",
                    "message": "Quota limit 'TPUV3' has been exceeded. Limit: 8 in zone Z.",
                    "metadata": {"quota_limit": "TPUV3"},
                },
                errors.QuotaError,
                "Limit: 8",
            ),
            (
                "failed-operation",
                {"code": "PERMISSION_DENIED", "message": "off", "reason": "SERVICE_DISABLED"},
                errors.ConfigError,
                "is not enabled",
            ),
        ],
    )
    def test_an_operation_that_fails_late(
        self,
        provider: CloudTpu,
        simulator: RunningSimulator,
        kind: str,
        fields: dict[str, object],
        ours: type,
        words: str,
    ) -> None:
        simulator.faults.add(kind, **fields)
        with pytest.raises(ours) as failed:
            wait(provider.begin(CreateNode(REQUEST)))
        assert type(failed.value) is ours
        assert words in failed.value.message

    def test_a_quota_failure_is_one_by_its_details_whatever_its_text(
        self, provider: CloudTpu, simulator: RunningSimulator
    ) -> None:
        metadata = {"quota_limit": "TPUV3"}
        for late in (False, True):
            simulator.faults.add(
                grpc_fault("tpu.CreateNode", 8, "exhausted", metadata=metadata, late=late, count=1)
            )
            with pytest.raises(errors.QuotaError):
                wait(provider.begin(CreateNode(REQUEST)))

    def test_a_quota_of_zero_was_never_granted(self, provider: CloudTpu, simulator: RunningSimulator) -> None:
        simulator.faults.add("quota", zone=ZONE)
        with pytest.raises(errors.QuotaError) as failed:
            provider.begin(CreateNode(REQUEST))
        assert failed.value.facts["granted"] is False
        assert "never granted" in failed.value.hint

    def test_a_disabled_api_names_the_page_that_enables_it(
        self, provider: CloudTpu, simulator: RunningSimulator
    ) -> None:
        simulator.world.disabled_projects.add("sim-project")
        with pytest.raises(errors.ConfigError) as failed:
            provider.list_nodes()
        assert failed.value.hint.startswith(
            "Enable it: gcloud services enable tpu.googleapis.com --project sim-project, "
            "or at https://console.developers.google.com/"
        )
        assert failed.value.facts["reason"] == "SERVICE_DISABLED"

    def test_a_zone_that_does_not_exist_is_not_a_missing_permission(self, provider: CloudTpu) -> None:
        with pytest.raises(errors.ConfigError, match="is not found or access is unauthorized") as failed:
            provider.list_nodes("europe-west9-z")
        assert failed.value.hint.startswith("The zone does not exist")

    def test_a_missing_permission_names_it(self, provider: CloudTpu, simulator: RunningSimulator) -> None:
        text = f"Permission 'tpu.nodes.get' denied on 'projects/p/locations/{ZONE}/nodes/n1'"
        simulator.faults.add(grpc_fault("tpu.GetNode", 7, text, reason="IAM_PERMISSION_DENIED"))
        with pytest.raises(errors.ConfigError, match=r"No permission for .*'tpu\.nodes\.get'") as failed:
            provider.get_node(NODE)
        assert "roles/tpu.admin" in failed.value.hint
