"""Every row of the tables of errors, through Google's client against the simulator: what the user reads."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from tests.cloud.test_error_mapping import SENTENCES, row_of
from tests.cloud.tpu.test_client import NODE, REQUEST, ZONE, create, wait
from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import errors
from tpuctl.cloud.error_mapping import EVERY_SERVICE, OWN_FAILURE
from tpuctl.cloud.storage import ROWS as STORAGE
from tpuctl.cloud.tpu import api_requests, error_document
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.cloud.tpu.error_document import document
from tpuctl.cloud.tpu.error_mapping import CREATING, RateLimitError
from tpuctl.nodes import Change, CreateNode, StartNode, StopNode, UpdateNode

NAME = f"projects/sim-project/locations/{ZONE}/nodes/n1"


@dataclass(frozen=True)
class Case:
    """How a row is provoked, and what its user gets."""

    row: str
    error: type[errors.TpuctlError]
    words: str
    """Of the message."""
    hint: str
    """Part of it."""
    fault: tuple[str, dict[str, object]] | None = None
    change: Change = field(default_factory=lambda: CreateNode(REQUEST))
    existing: str = ""
    """Type of a node that is READY before; empty for none."""
    prepare: Callable[[RunningSimulator, CloudTpu], object] = lambda *_: None


def refusal(code: str, message: str = "the words", reason: str = "") -> tuple[str, dict[str, object]]:
    """Return the fault that answers CreateNode with an error."""
    options: dict[str, object] = {"method": "CreateNode", "code": code, "message": message}
    return "error", options | ({"reason": reason} if reason else {})


def preempt(simulator: RunningSimulator, _: CloudTpu) -> None:
    simulator.call(simulator.world.preempt(NAME))


def create_first(_: RunningSimulator, provider: CloudTpu) -> None:
    create(provider)


RATE = (
    "Quota exceeded for quota metric 'Create requests' and limit 'Create requests per minute' of service "
    "'tpu.googleapis.com' for consumer 'project_number:1'."
)
THERE = replace(NODE, name="n1")
CASES = (
    Case(
        "too-large",
        errors.DeadlineError,
        "message larger than max (4238034 vs. 4194304)",
        "--zone ZONE",
        refusal(
            "RESOURCE_EXHAUSTED",
            "Stream removed (CLIENT: Received message larger than max (4238034 vs. 4194304))",
        ),
    ),
    Case(
        "rate",
        RateLimitError,
        "limit 'Create requests per minute'",
        "again in a minute",
        refusal("RESOURCE_EXHAUSTED", RATE, "RATE_LIMIT_EXCEEDED"),
    ),
    Case(
        "quota-zero",
        errors.QuotaError,
        "Limit: 0 in zone",
        "https://console.cloud.google.com/iam-admin/quotas",
        ("quota", {"zone": ZONE}),
    ),
    Case(
        "quota",
        errors.QuotaError,
        "Limit: 4 in zone",
        "'tpuctl down NAME'",
        ("quota", {"zone": ZONE, "limit": 4}),
    ),
    Case(
        "reserved-capacity",
        errors.StockoutError,
        "reserved capacity",
        "run the same command without it",
        ("stockout", {"reserved": True}),
    ),
    Case("stockout", errors.StockoutError, "There is no more capacity", "another --zone", ("stockout", {})),
    Case(
        "zone-denied",
        errors.ConfigError,
        "(or it may not exist)",
        "gcloud compute tpus locations list",
        ("zone-denied", {"zone": ZONE}),
    ),
    Case(
        "guest-attributes",
        errors.ConfigError,
        "are in guest attributes",
        "--host-keys first-contact",
        refusal(
            "FAILED_PRECONDITION", "Constraint constraints/compute.disableGuestAttributesAccess violated"
        ),
    ),
    Case(
        "preempted",
        errors.PreemptedError,
        "was preempted",
        "'tpuctl down n1'",
        existing="v3-8",
        prepare=preempt,
        change=StartNode(THERE),
    ),
    Case(
        "wrong-state",
        errors.StateError,
        "not supported while in state READY",
        "'tpuctl ls'",
        existing="v3-8",
        change=StartNode(THERE),
    ),
    Case(
        "several-hosts",
        errors.StateError,
        "only available with single TPU nodes",
        "tpuctl down n1",
        existing="v3-32",
        change=StopNode(THERE),
    ),
    Case(
        "type-not-in-zone",
        errors.UsageError,
        "was not found in zone",
        "tpuctl up v4-8 --zone us-central2-b",
        change=CreateNode(msgspec.structs.replace(REQUEST, accelerator="v4-8")),
    ),
    Case(
        "runtime",
        errors.UsageError,
        'cannot be "nope"',
        "--runtime",
        change=CreateNode(msgspec.structs.replace(REQUEST, runtime="nope")),
    ),
    Case(
        "no-reservation",
        errors.ConfigError,
        "Reservation not found",
        "reservations list",
        refusal("NOT_FOUND", "Reservation not found"),
    ),
    Case("missing", errors.NotFoundError, "does not exist", "'tpuctl ls'", change=StopNode(THERE)),
    Case(
        "precondition",
        errors.StateError,
        "the words",
        "'tpuctl ls'",
        ("error", {"method": "StopNode", "code": "FAILED_PRECONDITION", "message": "the words"}),
        existing="v3-8",
        change=StopNode(THERE),
    ),
    Case(
        "no-disk",
        errors.ConfigError,
        "cannot be created: The resource 'projects/p/zones/z/disks/d'",
        "--data-disk",
        refusal("NOT_FOUND", "The resource 'projects/p/zones/z/disks/d' was not found"),
    ),
    Case(
        "no-part",
        errors.ConfigError,
        "cannot be created: Requested entity was not found.",
        "--dry-run",
        refusal("NOT_FOUND", "Requested entity was not found."),
    ),
    Case(
        "api-off",
        errors.ConfigError,
        "is not enabled",
        "gcloud services enable tpu.googleapis.com --project sim-",
        ("api-off", {}),
    ),
    Case(
        "billing-off",
        errors.ConfigError,
        "the words",
        "gcloud billing projects link",
        refusal("PERMISSION_DENIED", reason="BILLING_DISABLED"),
    ),
    Case(
        "permission",
        errors.ConfigError,
        "'tpu.nodes.create' denied",
        "roles/tpu.admin",
        ("permission", {"method": "CreateNode"}),
    ),
    Case(
        "credentials",
        errors.ConfigError,
        "credentials were refused",
        "gcloud auth application-default login",
        refusal("UNAUTHENTICATED"),
    ),
    Case("bad-request", errors.UsageError, "the words", "--dry-run", refusal("INVALID_ARGUMENT")),
    Case("exists", errors.ConflictError, "exists already", "--name", prepare=create_first),
    Case("changed", errors.ConflictError, "another client", "again", refusal("ABORTED")),
    Case(
        "no-answer",
        errors.DeadlineError,
        "No answer about",
        "again",
        ("deadline-exceeded", {"method": "CreateNode"}),
    ),
    Case(
        "unreachable",
        errors.DeadlineError,
        "cannot be reached",
        "network",
        ("unavailable", {"method": "CreateNode"}),
    ),
    Case("own-failure", errors.ServiceError, "the words", "again", refusal("INTERNAL")),
)
BY_ROW = {case.row: case for case in CASES}


def provoke(case: Case, simulator: RunningSimulator, provider: CloudTpu) -> errors.TpuctlError:
    """Return the error that a case ends in."""
    if case.existing:
        create(provider, msgspec.structs.replace(REQUEST, accelerator=case.existing))
    case.prepare(simulator, provider)
    if case.fault:
        simulator.faults.add(case.fault[0], **case.fault[1])
    with pytest.raises(errors.TpuctlError) as failed:
        wait(provider.begin(case.change))
    return failed.value


def test_every_row_has_a_case_or_a_sentence() -> None:
    rows = {row.name for row in (*CREATING.rows, *STORAGE, *EVERY_SERVICE, OWN_FAILURE)}
    assert rows == set(BY_ROW) | {row_of(sentence).name for sentence in SENTENCES if sentence.code[0]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
def test_a_row_is_what_the_user_reads(
    case: Case, simulator: RunningSimulator, provider: CloudTpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_requests, "RATE_TIMEOUT", 0.0)
    error = provoke(case, simulator, provider)
    assert type(error) is case.error
    assert case.words in error.message
    assert re.search("'[nq]1'", error.message), "it names the resource"
    assert case.hint in error.hint
    assert "{" not in error.message + error.hint


@pytest.mark.parametrize(("row", "granted"), [("quota-zero", False), ("quota", True)])
def test_a_refused_quota_is_asked_for_once(
    simulator: RunningSimulator, provider: CloudTpu, row: str, granted: bool
) -> None:
    error = provoke(BY_ROW[row], simulator, provider)
    assert error.facts["granted"] is granted
    assert len(simulator.events.find(kind="request", what="CreateNode")) == 1


@pytest.mark.parametrize(
    "words",
    [
        "Quota limit 'A,B' has been exceeded. Limit: 0,0 in region us-central1,zone us-central1-a.",
        "Quota limit 'A,B' has been exceeded. Limit: 8,0 in region us-central1,zone us-central1-a.",
        "Quota limit 'A' has been exceeded. Limit: 0",
        "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 0 in region us-west4",
        "Quota 'A' exhausted.\n      Limit 0 in region us-west4",
        "Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 0.0 in region us-west4.",
    ],
)
def test_a_quota_of_zero_in_any_wording_was_never_granted(
    simulator: RunningSimulator, provider: CloudTpu, words: str
) -> None:
    case = replace(BY_ROW["quota"], fault=refusal("RESOURCE_EXHAUSTED", words))
    assert provoke(case, simulator, provider).facts["granted"] is False


@pytest.mark.parametrize("limit", ["8", "08.5", "100", "0.5", "0.05", "10.0"])
def test_another_limit_was_granted(simulator: RunningSimulator, provider: CloudTpu, limit: str) -> None:
    words = f"Quota limit 'A' has been exceeded. Limit: {limit} in zone Z."
    case = replace(BY_ROW["quota"], fault=refusal("RESOURCE_EXHAUSTED", words))
    assert provoke(case, simulator, provider).facts["granted"] is True


def test_a_row_decides_also_about_an_operation_that_fails_late(
    simulator: RunningSimulator, provider: CloudTpu
) -> None:
    for code, words, ours in (
        ("INVALID_ARGUMENT", "update is not supported while in state PREEMPTED", errors.PreemptedError),
        ("RESOURCE_EXHAUSTED", "Insufficient reserved capacity.", errors.StockoutError),
        ("INVALID_ARGUMENT", "the accelerator v3-8 was not found in zone Z", errors.UsageError),
    ):
        simulator.faults.add("failed-operation", code=code, message=words, count=1)
        with pytest.raises(ours):
            wait(provider.begin(CreateNode(REQUEST)))


def test_a_type_that_nobody_knows_has_no_zones(simulator: RunningSimulator, provider: CloudTpu) -> None:
    words = "the accelerator v9-9 was not found in zone us-east1-d"
    case = replace(BY_ROW["bad-request"], fault=refusal("INVALID_ARGUMENT", words))
    error = provoke(case, simulator, provider)
    assert "gcloud compute tpus accelerator-types list" in error.hint


@pytest.mark.parametrize("row", ["quota-zero", "stockout", "zone-denied", "api-off", "permission"])
def test_the_command_line_shows_the_hint_and_ends_with_the_exit_code(
    simulator: RunningSimulator, tpuctl: Callable[..., CommandResult], row: str
) -> None:
    case = BY_ROW[row]
    assert case.fault
    simulator.faults.add(case.fault[0], **case.fault[1])
    result = tpuctl("up", "v3-8", "--name", "n1", "--yes", "--json")
    assert result.code == errors.EXIT_CODES[case.error.kind]
    assert case.words in result.json["error"]["message"]
    assert "Hint: " in result.err
    assert "Traceback" not in result.err


def test_an_update_of_a_preempted_node_is_a_preemption(
    simulator: RunningSimulator, provider: CloudTpu
) -> None:
    node = create(provider)
    preempt(simulator, provider)
    with pytest.raises(errors.PreemptedError):
        provider.begin(UpdateNode(node, labels={}))


def test_the_document_is_what_the_tables_say() -> None:
    expected = document()
    assert (ROOT / "docs" / "errors.md").read_text() == expected, "python -m tpuctl.cloud.tpu.error_document"


def test_the_document_is_written_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["error_document", str(tmp_path / "errors.md")])
    runpy.run_path(error_document.__file__, run_name="__main__")
    assert (tmp_path / "errors.md").read_text() == document()
