"""What users read of an answer of any service: by its code, its reason, a detail, or its words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import QuotaFailure

from tpuctl.cloud.error_mapping import Failure, Row, Service, explain, first_row
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    QuotaError,
    ServiceError,
    StockoutError,
    TpuctlError,
    UsageError,
)

SERVICE = Service("x.googleapis.com", "roles/x.admin")
FAILURE = Failure(SERVICE, "Node 'n1'", 13, "the words")
DENIED = replace(FAILURE, code=7)


def explained(failure: Failure) -> tuple[type[TpuctlError], str, str]:
    error = explain(failure)
    return type(error), error.message, error.hint


AGAIN = "Run the same command again"


@pytest.mark.parametrize(
    ("code", "error", "message", "hint"),
    [
        (3, UsageError, "Node 'n1': the words",
         "The service refused the request as it was typed: --dry-run shows it."),
        (4, DeadlineError, "No answer about Node 'n1' in time: the words", f"{AGAIN} in a minute."),
        (5, NotFoundError, "Node 'n1' does not exist: the words", "Check its name."),
        (6, ConflictError, "Node 'n1' exists already: the words", "Choose another name with --name."),
        (7, ConfigError, "No permission for Node 'n1': the words",
         "Ask an owner of the project for the role roles/x.admin. Then check: tpuctl doctor"),
        (10, ConflictError, "Node 'n1' was changed by another client: the words", f"{AGAIN}."),
        (14, DeadlineError, "The service that knows about Node 'n1' cannot be reached: the words",
         "Check the network, then run the same command again."),
        (16, ConfigError, "The credentials were refused for Node 'n1': the words",
         "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS."),
        *((code, ServiceError, "Node 'n1': the words",
           "This is the service's own failure: run the same command again.")
          for code in (0, 1, 2, 8, 9, 11, 12, 13, 15, 17, 30, 70)),
    ],
)  # fmt: skip
def test_a_code_decides(code: int, error: type[TpuctlError], message: str, hint: str) -> None:
    assert explained(replace(FAILURE, code=code)) == (error, message, hint)


OFF = "An API that Node 'n1' needs is not enabled in the project."
PAGE = "https://console.developers.google.com/apis/api/x.googleapis.com/overview?project="


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("X API has not been used in project my-lab before or it is disabled.", " --project my-lab"),
        ("X API has not been used in project 123 before or it is disabled.", ""),
        (
            f"X API has not been used in project 123 before. Enable it by visiting {PAGE}123 then retry.",
            f", or at {PAGE}123",
        ),
        (
            f"X API has not been used in project lab:a.b-1 before. Visit {PAGE}lab then retry.",
            f" --project lab:a.b-1, or at {PAGE}lab",
        ),
    ],
)
def test_an_api_that_is_off_is_enabled_by_a_command_or_on_a_page(words: str, hint: str) -> None:
    expected = (ConfigError, OFF, f"Enable it: gcloud services enable x.googleapis.com{hint}")
    assert explained(replace(DENIED, message=words)) == expected


def test_an_api_that_is_off_is_told_by_the_reason_too() -> None:
    by_reason = replace(DENIED, reason="SERVICE_DISABLED", message=f"Enable it: {PAGE}my-lab")
    command = f"gcloud services enable x.googleapis.com --project my-lab, or at {PAGE}my-lab"
    message = f"{OFF.removesuffix('.')}: {by_reason.message}"
    assert explained(by_reason) == (ConfigError, message, f"Enable it: {command}")
    assert explain(by_reason).facts == {"reason": "SERVICE_DISABLED", "words": by_reason.message}
    for other in (replace(by_reason, code=13), replace(by_reason, reason="OTHER")):
        assert not explain(other).message.startswith("An API")


@pytest.mark.parametrize(
    ("reason", "words"), [("BILLING_DISABLED", "no"), ("", "This method requires billing to be enabled.")]
)
def test_billing_that_is_off_is_linked_by_a_command(reason: str, words: str) -> None:
    hint = "Link a billing account: gcloud billing projects link PROJECT --billing-account ACCOUNT"
    expected = (ConfigError, f"Node 'n1': {words}", hint)
    assert explained(replace(DENIED, reason=reason, message=words)) == expected


USER, STORAGE = "roles/iam.serviceAccountUser, on the service account of the TPU VMs", "roles/storage.admin"


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ("Permission 'tpu.nodes.create' denied on x", "roles/tpu.admin"),
        ("permission 'tpu.nodes.create' denied", "roles/tpu.admin"),
        ("a@b does not have storage.objects.list access to x", "roles/storage.objectUser"),
        ("a@b does not have storage.multipartUploads.create access", "roles/storage.objectUser"),
        ("a@b does not have storage.buckets.getIamPolicy access", STORAGE),
        ("a@b does not have storage.buckets.get access", "roles/storage.legacyBucketReader"),
        ("a@b does not have storage.buckets.update access", STORAGE),
        ("Permission 'iam.serviceAccounts.actAs' denied", USER),
        ("ask to grant you the iam.serviceAccountUser role", USER),
        ("Permission 'cloudquotas.quotas.get' denied", "roles/cloudquotas.viewer"),
        ("Permission 'compute.firewalls.list' denied",
         "NAME_member, which terraform/ grants its members, or roles/compute.viewer"),
        ("Permission 'serviceusage.services.use' denied", "roles/serviceusage.serviceUsageConsumer"),
        ("Required 'compute.zones.list' permission for 'projects/X'",
         "NAME_member, which terraform/ grants its members, or roles/compute.viewer"),
        ("a custom role with the serviceusage.services.use permission",
         "roles/serviceusage.serviceUsageConsumer"),
        ("Permission 'iam.serviceAccounts.getAccessToken' denied",
         "roles/iam.serviceAccountTokenCreator, on that service account"),
        ("Permission 'other.things.get' denied", "roles/x.admin"),
        ("Permission denied", "roles/x.admin"),
    ],
)  # fmt: skip
def test_the_least_role_with_the_permission_is_named(words: str, role: str) -> None:
    _, message, hint = explained(replace(DENIED, message=words))
    assert message == f"No permission for Node 'n1': {words}"
    assert hint == f"Ask an owner of the project for the role {role}. Then check: tpuctl doctor"


ROW = Row("own", (8, 9), "x", StockoutError, "{name}: {words}", "{subject} {role}")


@pytest.mark.parametrize(
    ("row", "failure", "fits"),
    [
        (ROW, replace(FAILURE, code=8), True),
        (ROW, replace(FAILURE, code=9), True),
        (ROW, replace(FAILURE, code=10), False),
        (replace(ROW, text="wor.s"), replace(FAILURE, code=8), True),
        (replace(ROW, text="others"), replace(FAILURE, code=8), False),
        (replace(ROW, reason="R"), replace(FAILURE, code=8, reason="R"), True),
        (replace(ROW, reason="R"), replace(FAILURE, code=8, reason="RR"), False),
        (replace(ROW, reason="R"), replace(FAILURE, code=8), False),
        (replace(ROW, reason="R", text="words"), replace(FAILURE, code=8), True),
        (replace(ROW, detail="QuotaFailure"), replace(FAILURE, code=8, details=(QuotaFailure(),)), True),
        (replace(ROW, detail="QuotaFailure"), replace(FAILURE, code=8, details=("text",)), False),
        (replace(ROW, detail="QuotaFailure"), replace(FAILURE, code=8), False),
        (replace(ROW, text="words", text_too="the"), replace(FAILURE, code=8), True),
        (replace(ROW, text="words", text_too="none"), replace(FAILURE, code=8), False),
    ],
)
def test_a_row_fits_by_its_code_and_one_of_reason_detail_and_text(
    row: Row, failure: Failure, fits: bool
) -> None:
    assert row.fits(failure) is fits


def test_a_detail_may_be_packed() -> None:
    packed = Packed()
    packed.Pack(QuotaFailure())
    failure = replace(FAILURE, details=(packed,))
    assert [failure.has_detail(name) for name in ("QuotaFailure", "Help")] == [True, False]
    assert not FAILURE.has_detail("QuotaFailure")


def test_the_rows_of_a_service_come_first_and_the_first_that_fits_decides() -> None:
    rows = (replace(ROW, text="none"), ROW, replace(ROW, error=QuotaError))
    failure = replace(FAILURE, code=8, service=replace(SERVICE, rows=rows))
    assert explained(failure) == (StockoutError, "n1: the words", "Node 'n1' roles/x.admin")
    assert first_row(rows, failure) is ROW
    assert first_row(rows[:1], failure) is None
    assert explained(replace(failure, code=5))[0] is NotFoundError


def test_a_subject_without_a_name_has_a_word_for_it() -> None:
    failure = replace(FAILURE, code=8, subject="The nodes", service=replace(SERVICE, rows=(ROW,)))
    assert explain(failure).message == "NAME: the words"


def test_what_a_row_finds_in_the_words_is_a_field() -> None:
    row = replace(
        ROW,
        text=r"(?P<kind>wor)ds(?P<rest>!)?",
        message="{kind}{rest}{twice}",
        derive=lambda fields: {"twice": 2 * fields["kind"]},
        facts={"a": 1},
    )
    failure = replace(FAILURE, code=8, reason="R", service=replace(SERVICE, rows=(row,)))
    error = explain(failure)
    assert error.message == "worworwor: the words"
    assert error.facts == {"a": 1, "reason": "R", "words": "the words"}


def test_a_sentence_that_says_no_more_is_not_repeated() -> None:
    row = replace(ROW, message="{subject} is gone.", stock="^the w")
    gone = replace(FAILURE, code=8, service=replace(SERVICE, rows=(row,)))
    for words, message in (
        ("the words", "Node 'n1' is gone."),
        ("why the words", "Node 'n1' is gone: why the words"),
        ("", "Node 'n1' is gone."),
    ):
        error = explain(replace(gone, message=words))
        assert (error.message, error.facts.get("words", "")) == (message, words)
    silent = explain(replace(FAILURE, message=""))
    assert (silent.message, silent.facts) == ("Node 'n1': the service gives no reason", {})


def test_what_fits_by_its_code_alone_decides_last() -> None:
    rows = (ROW, replace(ROW, text="words", error=QuotaError))
    assert explained(replace(FAILURE, code=8, service=replace(SERVICE, rows=rows)))[0] is QuotaError
    words = "Constraint constraints/compute.vmExternalIpAccess violated for project 1."
    forbidden = replace(FAILURE, code=9, message=words, service=replace(SERVICE, rows=rows[:1]))
    kind, message, hint = explained(forbidden)
    assert (kind, message) == (ConfigError, f"Node 'n1': {words}")
    assert "--internal-ips" in hint


@pytest.mark.parametrize("project", ["764086051850", "32555940559"])
def test_an_api_that_is_off_in_a_project_of_gcloud_itself_is_a_missing_quota_project(project: str) -> None:
    words = (
        f"X API has not been used in project {project} before or it is disabled. Enable it: {PAGE}{project}"
    )
    kind, message, hint = explained(replace(DENIED, message=words, reason="SERVICE_DISABLED"))
    assert (kind, message) == (ConfigError, f"Node 'n1': {words}")
    assert "gcloud auth application-default set-quota-project PROJECT" in hint


def test_the_api_that_is_off_is_that_of_the_page() -> None:
    page = PAGE.replace("x.googleapis.com", "compute.googleapis.com")
    words = f"Compute Engine API has not been used in project my-lab before. Visit {page}my-lab then retry."
    assert (
        "gcloud services enable compute.googleapis.com --project my-lab"
        in explain(replace(DENIED, message=words)).hint
    )
