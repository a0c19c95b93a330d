"""Maps errors of Google's clients to tpuctl's, by a table: status code and reason first, text last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import requests.exceptions
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from tpuctl.cloud.error_table import LOGIN, Failure, Service, explain
from tpuctl.cloud.request_log import naming_host
from tpuctl.errors import ConfigError, TpuctlError, cause

GOOGLE_CLOUD = Service(
    "tpu.googleapis.com storage.googleapis.com",
    "roles/tpu.admin and, for a bucket, roles/storage.objectUser",
)
CREDENTIALS = Service("iamcredentials.googleapis.com", "roles/iam.serviceAccountTokenCreator")
NO_ANSWER, UNREACHABLE, DENIED = 4, 14, 7
"""gRPC's codes: the first two for what happens before a service answers."""


@contextmanager
def translated(subject: str, service: Service = GOOGLE_CLOUD) -> Iterator[None]:
    """Turn errors of Google's clients inside the block into tpuctl's; `subject` names the resource.

    That of a service which cannot be reached names the host, too, and why.
    """
    with naming_host(), _translated(subject, service):
        yield


@contextmanager
def _translated(subject: str, service: Service) -> Iterator[None]:
    try:
        yield
    except google.GoogleAPICallError as error:
        raise explain(_failure(service, subject, error)) from cause(error)
    except google.RetryError as error:
        raise explain(Failure(service, subject, NO_ANSWER, "")) from cause(error)
    except auth.DefaultCredentialsError as error:
        raise ConfigError(_no_credentials(), hint=LOGIN, words=str(error)) from cause(error)
    except auth.RefreshError as error:
        raise _refused_credentials(subject, error) from cause(error)
    except (auth.TransportError, requests.exceptions.RequestException) as error:
        raise explain(Failure(service, subject, UNREACHABLE, "")) from cause(error)


def _refused_credentials(subject: str, error: auth.RefreshError) -> TpuctlError:
    """Return the error of credentials that give no token, in the words of the service that was asked.

    The client's error has its own sentence and, behind it, what the service answered: JSON or its record.
    """
    sentence, *answers = [*error.args, ""]
    for answer in answers:
        try:
            refusal = (json.loads(answer) if isinstance(answer, str) else answer)["error"]
            code, words = int(refusal["code"]), str(refusal["message"]).strip()
        except (KeyError, TypeError, ValueError):
            continue
        if HTTP_CODES.get(code) == DENIED:
            return explain(Failure(CREDENTIALS, subject, DENIED, words))
        sentence = words
    message = f"The Google Cloud credentials were refused: {sentence}".removesuffix(".")
    return ConfigError(f"{message}.", hint=LOGIN, words=str(sentence))


def _no_credentials() -> str:
    file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if file:
        return f"GOOGLE_APPLICATION_CREDENTIALS names {file}, which holds no credentials."
    return "There are no Google Cloud credentials on this machine."


HTTP_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 412: 10, 503: 14, 504: 4}
"""HTTP status -> gRPC code, for Cloud Storage. Its 429 is rate limiting and no stockout: not here."""


def _failure(service: Service, subject: str, error: google.GoogleAPICallError) -> Failure:
    details = tuple(error.details or ())
    return Failure(service, subject, _code(error), _words(error), str(error.reason or ""), details)


def _words(error: google.GoogleAPICallError) -> str:
    """Return the service's own words: around them are method and URL, and of media all of the answer."""
    text = str(getattr(error.response, "text", "")).strip()  # gRPC has none
    try:
        return str(json.loads(text)["error"]["message"]).strip()
    except (KeyError, TypeError, ValueError):
        is_page = text.startswith("<")  # of a proxy
    return text if text and not is_page else str(error.message).rsplit("prettyPrint=false: ", 1)[-1].strip()


def _code(error: google.GoogleAPICallError) -> int:
    grpc_code = error.grpc_status_code
    if grpc_code is not None:
        return int(grpc_code.value[0])
    return HTTP_CODES.get(int(error.code or 500), 13)
