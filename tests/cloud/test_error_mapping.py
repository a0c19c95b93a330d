"""Errors of Google's clients, built as they build them, and as the simulator sends them through Storage."""

from __future__ import annotations

import json

import pytest
import requests
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from tpuctl import errors
from tpuctl.cloud.error_mapping import GOOGLE_CLOUD, HTTP_CODES, translated
from tpuctl.cloud.error_table import EVERY_SERVICE, Service
from tpuctl.cloud.storage import SERVICE, Bucket
from tpuctl.sim.faults import grpc_fault

HTTP = [
    (400, errors.UsageError),
    (401, errors.ConfigError),
    (403, errors.ConfigError),
    (404, errors.NotFoundError),
    (409, errors.ConflictError),
    (412, errors.ConflictError),
    (429, errors.ServiceError),
    (500, errors.ServiceError),
    (502, errors.ServiceError),
    (503, errors.DeadlineError),
    (504, errors.DeadlineError),
    (418, errors.ServiceError),
]


def raised(error: BaseException, service: Service = GOOGLE_CLOUD) -> errors.TpuctlError:
    """Return tpuctl's error for an error of a client."""
    with pytest.raises(errors.TpuctlError) as caught, translated("Node 'n1'", service):
        raise error
    assert caught.value.__cause__ is error, "chained"
    assert caught.value.hint
    assert type(caught.value).kind != "bug"
    return caught.value


def refusal(status: int, message: str, query: str = "") -> google.GoogleAPICallError:
    """Return the error of the client for an answer over HTTP."""
    response = requests.Response()
    response.status_code = status
    response._content = json.dumps({"error": {"message": message}}).encode()
    response.request = requests.Request("GET", f"https://storage.googleapis.com/x{query}").prepare()
    return google.from_http_response(response)


@pytest.mark.parametrize(("status", "ours"), HTTP)
def test_an_http_status_becomes_ours(status: int, ours: type) -> None:
    assert type(raised(refusal(status, "the words"))) is ours


def test_no_row_is_without_a_test() -> None:
    tested = {status for status, _ in HTTP}
    assert set(HTTP_CODES) <= tested
    codes = {code for row in EVERY_SERVICE for code in row.codes}
    assert codes <= {HTTP_CODES[status] for status in tested & set(HTTP_CODES)}


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
    ids=lambda parameter: type(parameter).__name__ if isinstance(parameter, Exception) else "",
)
def test_errors_without_a_status_become_ours(error: Exception, ours: type, words: str) -> None:
    translation = raised(error)
    assert type(translation) is ours
    assert words in translation.message


def test_a_bug_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), translated("x"):
        raise ZeroDivisionError


def test_the_words_of_cloud_storage_come_without_method_and_url() -> None:
    refused = refusal(403, "ada does not have storage.objects.list access", "?prettyPrint=false")
    translation = raised(refused, SERVICE)
    assert translation.message == (
        "No permission for Node 'n1': ada does not have storage.objects.list access"
    )
    assert translation.hint == (
        "Ask an owner of the project for the role roles/storage.objectUser. Then check: tpuctl doctor"
    )


def test_a_disabled_api_is_named_when_the_answer_names_no_page() -> None:
    message = "Cloud Storage JSON API has not been used in project 1 before or it is disabled."
    translation = raised(refusal(403, message), SERVICE)
    assert translation.message == "An API that Node 'n1' needs is not enabled in the project."
    assert translation.hint == "Enable it: gcloud services enable storage.googleapis.com"


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

    def test_the_words_of_every_refusal_come_without_method_url_and_json(
        self, bucket: Bucket, simulator
    ) -> None:
        bucket.create("x", b"1")
        stored = bucket.stat("x")
        simulator.faults.add(grpc_fault("storage.objects.*", 7, "the words"))
        for call in (
            lambda: bucket.objects("x"),
            lambda: bucket.read("x"),
            lambda: bucket.remove(stored),
            lambda: bucket.create("y", b"1"),
            lambda: bucket.replace(stored, b"2"),
            lambda: bucket.upload("x", [b"2"], ""),
        ):
            with pytest.raises(errors.ConfigError) as refused:
                call()
            assert refused.value.message.endswith(": the words"), refused.value.message
            assert "http" not in refused.value.message

    def test_a_request_to_a_busy_bucket_is_retried(self, bucket: Bucket, simulator) -> None:
        simulator.faults.add(grpc_fault("storage.objects.create", 14, "busy", count=1))
        simulator.faults.add(grpc_fault("storage.objects.get", 8, "slow down", count=1))
        bucket.create("x", b"1")
        assert bucket.read("x") == b"1"
