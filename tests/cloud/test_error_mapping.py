"""Foreign errors, built as Google's clients build them, and as the simulator sends them."""

from __future__ import annotations

import grpc
import pytest
import requests
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from tpuctl import errors
from tpuctl.cloud.error_mapping import BY_CODE, HTTP_CODES, from_status, translated
from tpuctl.cloud.storage import Bucket
from tpuctl.cloud.tpu import TpuApi
from tpuctl.sim.faults import grpc_fault

ZONE = "europe-west4-a"
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
    (grpc.StatusCode.FAILED_PRECONDITION, "state STOPPED", errors.StateError),
    (grpc.StatusCode.FAILED_PRECONDITION, "state PREEMPTED", errors.PreemptedError),
    (grpc.StatusCode.FAILED_PRECONDITION, "Insufficient reserved capacity.", errors.StockoutError),
    (grpc.StatusCode.ABORTED, "changed", errors.ConflictError),
    (grpc.StatusCode.UNAVAILABLE, "down", errors.DeadlineError),
    (grpc.StatusCode.UNAUTHENTICATED, "who", errors.ConfigError),
    (grpc.StatusCode.INTERNAL, "oops", errors.DeadlineError),
    (grpc.StatusCode.UNKNOWN, "oops", errors.DeadlineError),
    (grpc.StatusCode.CANCELLED, "oops", errors.DeadlineError),
    (grpc.StatusCode.UNIMPLEMENTED, "oops", errors.DeadlineError),
    (grpc.StatusCode.DATA_LOSS, "oops", errors.DeadlineError),
]
HTTP = [
    (400, errors.UsageError),
    (401, errors.ConfigError),
    (403, errors.ConfigError),
    (404, errors.NotFoundError),
    (409, errors.ConflictError),
    (412, errors.ConflictError),
    (429, errors.DeadlineError),
    (500, errors.DeadlineError),
    (502, errors.DeadlineError),
    (503, errors.DeadlineError),
    (504, errors.DeadlineError),
    (418, errors.DeadlineError),
]


def raised(error: BaseException) -> errors.TpuctlError:
    """Return what becomes of an error."""
    with pytest.raises(errors.TpuctlError) as caught, translated("Node 'n1'"):
        raise error
    assert caught.value.__cause__ is error, "chained"
    assert caught.value.hint
    assert type(caught.value).kind != "bug"
    return caught.value


@pytest.mark.parametrize(("status", "message", "ours"), GRPC, ids=lambda one: getattr(one, "name", ""))
def test_a_grpc_status_becomes_ours(status: grpc.StatusCode, message: str, ours: type) -> None:
    error = google.from_grpc_status(status, message)
    assert type(raised(error)) is ours


@pytest.mark.parametrize(("status", "ours"), HTTP)
def test_an_http_status_becomes_ours(status: int, ours: type) -> None:
    response = requests.Response()
    response.status_code = status
    response._content = b'{"error": {"message": "the words"}}'
    response.request = requests.Request("GET", "https://storage.googleapis.com/x").prepare()
    assert type(raised(google.from_http_response(response))) is ours


def test_no_row_is_without_a_test() -> None:
    assert set(BY_CODE) | {7, 8} <= {int(status.value[0]) for status, *_ in GRPC}
    assert set(HTTP_CODES) <= {status for status, _ in HTTP}


@pytest.mark.parametrize(
    ("error", "ours", "words"),
    [
        (google.RetryError("late", ValueError()), errors.DeadlineError, "No answer about Node 'n1'"),
        (auth.DefaultCredentialsError("none"), errors.ConfigError, "no Google Cloud credentials"),
        (auth.RefreshError("expired"), errors.ConfigError, "credentials were refused: expired"),
        (auth.TransportError("cut"), errors.DeadlineError, "cannot be reached"),
        (requests.exceptions.ConnectionError("cut"), errors.DeadlineError, "cannot be reached"),
        (requests.exceptions.ReadTimeout("late"), errors.DeadlineError, "cannot be reached"),
        (requests.exceptions.ChunkedEncodingError("cut"), errors.DeadlineError, "cannot be reached"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_errors_without_a_status_become_ours(error: Exception, ours: type, words: str) -> None:
    found = raised(error)
    assert type(found) is ours
    assert words in found.message


def test_a_bug_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), translated("x"):
        raise ZeroDivisionError


def test_the_words_of_cloud_storage_come_without_method_and_url() -> None:
    response = requests.Response()
    response.status_code = 403
    response._content = b'{"error": {"message": "ada does not have storage.objects.list access"}}'
    response.request = requests.Request("GET", "https://x/b/y/o?prettyPrint=false").prepare()
    found = raised(google.from_http_response(response))
    assert found.message == "No permission for Node 'n1': ada does not have storage.objects.list access"


def test_a_reason_decides_before_the_text() -> None:
    found = from_status("X", 7, "anything", "SERVICE_DISABLED")
    assert found.message == "An API that X needs is not enabled in the project."
    assert "gcloud services enable" in found.hint
    assert "does not exist" in from_status("X", 7, "anything", "LOCATION_POLICY_VIOLATED").hint


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
    def test_an_operation_that_fails_late(self, tpu: TpuApi, simulator, kind, fields, ours, words) -> None:
        from tests.cloud.test_tpu import REQUEST, end

        simulator.faults.add(kind, **fields)
        with pytest.raises(ours) as failed:
            end(tpu, tpu.create(REQUEST))
        assert type(failed.value) is ours
        assert words in failed.value.message

    def test_a_quota_failure_is_one_by_its_details_whatever_its_text(self, tpu: TpuApi, simulator) -> None:
        from tests.cloud.test_tpu import REQUEST, end

        metadata = {"quota_limit": "TPUV3"}
        for late in (False, True):
            simulator.faults.add(
                grpc_fault("tpu.CreateNode", 8, "exhausted", metadata=metadata, late=late, count=1)
            )
            with pytest.raises(errors.QuotaError):
                end(tpu, tpu.create(REQUEST))

    def test_a_quota_of_zero_was_never_granted(self, tpu: TpuApi, simulator) -> None:
        from tests.cloud.test_tpu import REQUEST

        simulator.faults.add("quota", zone=ZONE)
        with pytest.raises(errors.QuotaError) as failed:
            tpu.create(REQUEST)
        assert failed.value.facts["granted"] is False
        assert "never granted" in failed.value.hint

    def test_an_api_that_is_off_names_the_page(self, tpu: TpuApi, simulator) -> None:
        simulator.world.disabled_projects.add("sim-project")
        with pytest.raises(errors.ConfigError) as failed:
            tpu.nodes()
        assert failed.value.hint.startswith("Enable it at https://console.developers.google.com/")
        assert failed.value.facts["reason"] == "SERVICE_DISABLED"

    def test_a_zone_that_is_none_is_no_missing_permission(self, tpu: TpuApi) -> None:
        with pytest.raises(errors.ConfigError, match="it may not exist") as failed:
            tpu.nodes("europe-west9-z")
        assert failed.value.hint.startswith("The zone does not exist")

    def test_a_missing_permission_names_it(self, tpu: TpuApi, simulator) -> None:
        text = f"Permission 'tpu.nodes.get' denied on 'projects/p/locations/{ZONE}/nodes/n1'"
        simulator.faults.add(grpc_fault("tpu.GetNode", 7, text, reason="IAM_PERMISSION_DENIED"))
        with pytest.raises(errors.ConfigError, match=r"No permission for .*'tpu\.nodes\.get'") as failed:
            tpu.node(ZONE, "n1")
        assert "roles/tpu.admin" in failed.value.hint


class TestThroughStorage:
    @pytest.mark.parametrize(
        ("code", "ours"),
        [
            (3, errors.UsageError),
            (7, errors.ConfigError),
            (9, errors.ConflictError),
            (16, errors.ConfigError),
        ],
    )
    def test_an_answer_becomes_ours(self, bucket: Bucket, simulator, code: int, ours: type) -> None:
        simulator.faults.add(grpc_fault("storage.objects.*", code, "the words"))
        for call in (
            lambda: bucket.objects("x"),
            lambda: bucket.read("x"),
            lambda: bucket.upload("x", [b""], ""),
        ):
            with pytest.raises(ours):
                call()

    def test_a_bucket_that_is_busy_is_asked_again(self, bucket: Bucket, simulator) -> None:
        simulator.faults.add(grpc_fault("storage.objects.create", 14, "busy", count=1))
        simulator.faults.add(grpc_fault("storage.objects.get", 8, "slow down", count=1))
        bucket.create("x", b"1")
        assert bucket.read("x") == b"1"
