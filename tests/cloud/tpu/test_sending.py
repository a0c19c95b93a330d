"""Requests of the Cloud TPU API that may be sent twice: which failures are tried again, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from google.api_core import exceptions

from tpuctl.cloud.tpu import api_requests
from tpuctl.cloud.tpu.api_requests import TIMEOUT, send, send_once
from tpuctl.cloud.tpu.error_mapping import RateLimitError
from tpuctl.errors import TpuctlError
from tpuctl.polling import retry


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between requests, which pass no time."""
    pauses: list[float] = []
    clock = lambda: 1000.0 + sum(pauses)  # noqa: E731
    monkeypatch.setattr(api_requests, "retry", partial(retry, sleep=pauses.append, clock=clock))
    return pauses


class Api:
    """Answers with these errors, one after the other, the last one for ever; with its request after them."""

    def __init__(self, *errors: Exception, recovers: bool) -> None:
        self._errors = list(errors)
        self._recovers = recovers
        self.timeouts: list[float] = []

    def __call__(self, request: object, *, retry: object, timeout: float) -> object:
        self.timeouts.append(timeout)
        if self._errors:
            raise self._errors.pop(0) if self._recovers else self._errors[0]
        return request


TRANSIENT = (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded, exceptions.InternalServerError)


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("error", TRANSIENT)
def test_a_service_that_stays_down_is_given_up_after_twenty_seconds(
    slept: list[float], error: type[Exception], changes: bool
) -> None:
    api = Api(error("down"), recovers=False)
    with pytest.raises(TpuctlError):
        send("node 'n1'", api, "request", changes=changes)
    assert len(api.timeouts) == len(slept) + 1 > 3
    assert 10 < sum(slept) <= 20
    assert set(api.timeouts) == {TIMEOUT} == {60.0}


@pytest.mark.parametrize("error", [*TRANSIENT, exceptions.Aborted])
def test_a_failure_that_passes_is_not_noticed(slept: list[float], error: type[Exception]) -> None:
    assert send("node 'n1'", Api(error("down"), error("down"), recovers=True), "request") == "request"
    assert len(slept) == 2


@pytest.mark.parametrize(
    ("error", "changes"),
    [(exceptions.Aborted, True), (exceptions.NotFound, False), (exceptions.NotFound, True)],
)
def test_an_answer_that_another_request_would_not_change_is_an_error_at_once(
    slept: list[float], error: type[Exception], changes: bool
) -> None:
    with pytest.raises(TpuctlError):
        send("node 'n1'", Api(error("no"), recovers=True), "request", changes=changes)
    assert slept == []


RATE = exceptions.ResourceExhausted("Quota exceeded for ... limit 'Read requests per minute' of service ...")


@pytest.mark.parametrize("sender", [send, partial(send, changes=True), send_once])
def test_a_request_that_is_refused_for_its_rate_is_sent_again_for_more_than_a_minute(
    slept: list[float], sender: Callable[..., object]
) -> None:
    assert sender("node 'n1'", Api(RATE, RATE, recovers=True), "request") == "request"
    assert len(slept) == 2
    slept.clear()
    with pytest.raises(RateLimitError):
        sender("node 'n1'", Api(RATE, recovers=False), "request")
    assert 60 < sum(slept) <= 90


def test_a_request_that_takes_effect_once_is_not_sent_again_after_a_lost_answer(slept: list[float]) -> None:
    for error in (*TRANSIENT, exceptions.Aborted):
        api = Api(error("lost"), recovers=True)
        with pytest.raises(TpuctlError):
            send_once("node 'n1'", api, "request")
        assert (len(api.timeouts), slept) == (1, [])
