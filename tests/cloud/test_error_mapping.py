"""Errors of Google's clients, built as they build them, and as the simulator sends them through Storage.

What Google's services said in public reports, and what each shall become, is in `sentences.toml`: the real
client of each service meets it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import requests
from google.api_core import exceptions as google
from google.auth import exceptions as auth
from google.auth import impersonated_credentials
from google.oauth2.credentials import Credentials

from tests.cloud.iap.scripted_relay import scripted_relay
from tests.cloud.web_server import WebServer, serving
from tests.crashes.world import CrashWorld, Worlds
from tpuctl import errors
from tpuctl.cloud import google_clients
from tpuctl.cloud.error_mapping import (
    CREDENTIALS,
    EVERY_SERVICE,
    GOOGLE_CLOUD,
    HTTP_CODES,
    Failure,
    Row,
    Service,
    deciding_row,
    translated,
)
from tpuctl.cloud.iap import Instance, Relay, open_tunnel
from tpuctl.cloud.rest import RestApi
from tpuctl.cloud.storage import SERVICE, Bucket
from tpuctl.cloud.tpu import error_mapping as tpu_errors
from tpuctl.cloud.tpu import project_metadata
from tpuctl.errors import EXIT_CODES, TpuctlError
from tpuctl.sim.faults import grpc_fault
from tpuctl.sim.world.api_errors import Code

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
    codes = {code for row in EVERY_SERVICE if row.is_general for code in row.codes}
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


ZONES = ("europe-west4-a", "us-central1-b")
ROUNDS = "2m"
"""For how long `up` looks for capacity: some rounds."""


class Sentence(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One of the table; `sentences.toml` says what the fields are."""

    service: str
    method: str
    words: str
    url: str
    code: tuple[str, str]
    reason: tuple[str, str]
    exit: int
    kind: str
    hint: str
    next: str
    of: str = ""
    year: int = 0
    late: bool = False
    type: str = "v3-8"
    zones: tuple[str, ...] = ZONES
    stock: bool = False


SENTENCES = msgspec.convert(
    tomllib.loads((Path(__file__).parent / "sentences.toml").read_text())["sentence"], list[Sentence]
)


@dataclass(frozen=True)
class Told:
    """What the user gets."""

    exit: int
    kind: str
    message: str
    hint: str
    words: object
    next: str = "stop"


def row_of(sentence: Sentence) -> Row:
    """Return the row of the tables that decides about it."""
    code, creates = sentence.code[0], sentence.method.startswith("Create")
    service = {
        "tpu": tpu_errors.CREATING if creates else tpu_errors.SERVICE,
        "storage": SERVICE,
        "oauth": CREDENTIALS,
    }.get(sentence.service, project_metadata.SERVICE)
    number = HTTP_CODES.get(int(code), 0) if code.isdigit() else Code[code]
    return deciding_row(Failure(service, "Node 'n1'", number, sentence.words, sentence.reason[0]))


def of(service: str) -> list[Sentence]:
    return [sentence for sentence in SENTENCES if sentence.service == service]


def told_by(call: Callable[[], object]) -> Told:
    """Return what an error of a client says."""
    with pytest.raises(TpuctlError) as refused:
        call()
    error = refused.value
    return Told(error.exit_code, error.kind, error.message, error.hint, error.facts.get("words"))


def through_tpu(world: CrashWorld, number: int, sentence: Sentence) -> Told:
    """Let the API answer each request of a kind so; `next` is what `up` does that has several zones."""
    world.faults.clear()
    world.faults.add(
        "failed-operation" if sentence.late else "error",
        method=sentence.method, code=sentence.code[0], message=sentence.words,
        reason=sentence.reason[0] or None,
    )  # fmt: skip
    provider = world.provider
    if sentence.method == "ListNodes":
        return told_by(provider.list_nodes)
    if sentence.method == "GetNode":
        return told_by(lambda: provider.get_node(provider.node_id(ZONES[0], "n1")))
    if sentence.method == "GetGuestAttributes":
        return told_by(lambda: provider.host_keys(provider.node_id(ZONES[0], "n1")))
    up = ("up", sentence.type, "--yes", *("--queued",) * (sentence.method == "CreateQueuedResource"))
    zones = [word for zone in sentence.zones for word in ("--zone", zone)]
    alone = world.tpuctl(*up, *zones[:2], "--name", f"alone-{number}", "--json")
    error = alone.json["error"]
    assert alone.code == error["exit_code"]
    world.tpuctl(*up, *zones, "--name", f"search-{number}", "--wait-capacity", ROUNDS)
    tries = world.latest.count(sentence.method)
    following = "round" if tries > len(sentence.zones) else "zone" if tries > 1 else "stop"
    return Told(alone.code, error["kind"], error["message"], error["hint"], error.get("words"), following)


def through_rest(web: WebServer, sentence: Sentence) -> Told:
    """Let a web server answer so, as Cloud Storage or Compute Engine."""
    web.refusal, web.statuses[:] = answer(sentence), [int(sentence.code[0])]
    if sentence.service == "compute":
        with requests.Session() as session:
            session.trust_env = False
            api = RestApi(session, web.url, project_metadata.SERVICE)
            return told_by(lambda: list(api.pages("/x", NoPage, "The network of project p")))
    client = google_clients.storage_client("p", google_clients.anonymous_credentials(), web.url)
    bucket = Bucket(client, "a-bucket")
    return told_by(
        (lambda: bucket.objects("x")) if sentence.method == "GET" else (lambda: bucket.create("x", b"1"))
    )


class NoPage(msgspec.Struct):
    """A page of a list that is never answered."""

    next_page_token: str = ""


def answer(sentence: Sentence) -> bytes:
    """Return the body of a refusal, as Google's APIs write it: an ErrorInfo has its reason in capitals."""
    reason = sentence.reason[0]
    body: dict[str, object] = {"code": int(sentence.code[0]), "message": sentence.words}
    if reason.isupper():
        body["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
    else:
        body["errors"] = [{"message": sentence.words, "domain": "global", "reason": reason}]
    return json.dumps({"error": body}).encode()


def through_oauth(web: WebServer, sentence: Sentence) -> Told:
    """Let a token server answer so, and nothing on this machine be a login."""
    if sentence.method == "default":
        return told_by(google_clients.default_credentials)
    web.statuses[:] = [int(sentence.code[0])]
    if sentence.method == "refresh":
        error, _, description = sentence.words.partition(": ")
        web.refusal = json.dumps({"error": error, "error_description": description}).encode()
        user = Credentials(
            None, "a-refresh-token", token_uri=f"{web.url}/token", client_id="i", client_secret="s"
        )
        return told_by(lambda: google_clients.AccessToken(user)(renew=True))
    web.refusal = answer(sentence)
    account = impersonated_credentials.Credentials(
        Credentials("a-token"), "robot@p.iam.gserviceaccount.com", google_clients.SCOPES,
        iam_endpoint_override=f"{web.url}/token",
    )  # fmt: skip
    return told_by(lambda: google_clients.AccessToken(account)(renew=True))


def through_iap(sentence: Sentence) -> Told:
    """Let a relay close the tunnel so."""
    with scripted_relay(backend=1) as relay:
        relay.closes = [(int(sentence.code[0]), sentence.words)]
        way = Relay(lambda renew: "a-token", relay.url, is_local=True)
        return told_by(lambda: open_tunnel(way, Instance("p", "z", "i"), "Worker 0 of 'n1'"))


@contextmanager
def nobody_logged_in(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[None]:
    with monkeypatch.context() as environment:
        environment.setenv("CLOUDSDK_CONFIG", str(home))
        environment.setenv("NO_GCE_CHECK", "true")
        environment.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        yield


def differences(sentence: Sentence, told: Told) -> Iterator[str]:
    """What the user gets, and should not."""
    wanted = (sentence.exit, sentence.kind, sentence.next)
    if (told.exit, told.kind, told.next) != wanted:
        yield f"ends as {told.exit, told.kind, told.next}, not as {wanted}: {told.message}"
    if sentence.hint not in told.hint:
        yield f"{sentence.hint!r} is not in the hint {told.hint!r}"
    if told.words != sentence.words:
        yield f"the JSON has the words {told.words!r}"
    if (sentence.words in told.message) is sentence.stock:
        yield f"the message is {told.message!r}"


def test_every_sentence_is_told_as_the_table_says(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[tuple[Sentence, Told]]()
    with Worlds(tmp_path, monkeypatch).new() as world:
        told += [(each, through_tpu(world, number, each)) for number, each in enumerate(of("tpu"))]
    with serving({}) as web, nobody_logged_in(monkeypatch, home):
        told += [(each, through_rest(web, each)) for each in (*of("compute"), *of("storage"))]
        told += [(each, through_oauth(web, each)) for each in of("oauth")]
    told += [(each, through_iap(each)) for each in of("iap")]
    assert len(told) == len(SENTENCES)
    wrong = [f"{each.url}\n  {each.words}\n  {line}" for each, got in told for line in differences(each, got)]
    assert not wrong, "\n".join(wrong)


def test_no_sentence_is_without_its_source() -> None:
    for each in SENTENCES:
        assert each.url.startswith("https://"), each
        assert each.year < 2022, each
        assert {each.code[1], each.reason[1]} <= {"observed", "inferred"}, each
        assert EXIT_CODES[each.kind] == each.exit, each
        assert each.next in {"zone", "round", "stop"}, each
    assert len({(each.service, each.method, each.words) for each in SENTENCES}) == len(SENTENCES)
