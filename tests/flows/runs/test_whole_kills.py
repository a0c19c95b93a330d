"""`tpuctl run` ended at each of its requests, then typed again: one node, one run, results once."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
import requests

from tests.crashes.world import Killed
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.ssh.session import SshSession
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun

RPC = grpc._channel._UnaryUnaryMultiCallable  # the class of every call of Google's client

BACKGROUND = ("_verify_existence_background", "launch sign", "within")
"""In the names of threads of Google's storage client, of a start that takes long, and of looks that a command
does not need: no step of a command."""


class Requests:
    """The requests of a command, by name; from the `fatal` one on, each raises `error`."""

    def __init__(
        self, fatal: Callable[[str, int], bool], when: str, error: Callable[[], BaseException]
    ) -> None:
        """Take `fatal`, which gets the name of a request and its number; `when` is `before` or `after`."""
        self.names: list[str] = []
        self.has_ended = False
        self._fatal, self._when, self._error = fatal, when, error
        self._lock = threading.Lock()

    def send(self, name: str, deliver: Callable[[], Any]) -> Any:
        """Deliver a request, unless the command ends before."""
        if any(name in threading.current_thread().name for name in BACKGROUND):
            return deliver()
        with self._lock:
            if self.has_ended:
                raise Killed
            is_fatal = self._fatal(name, len(self.names))
            self.names.append(name)
            self.has_ended = is_fatal and self._when == "before"
        if self.has_ended:
            raise self._error()
        answer = deliver()
        if is_fatal:
            self.has_ended = True
            raise self._error()
        return answer


@contextmanager
def ended_at(
    fatal: Callable[[str, int], bool], when: str, error: Callable[[], BaseException] = Killed
) -> Iterator[Requests]:
    """Let every command of the block end so; nothing of a command that was killed is sent afterwards."""
    sent, patch = Requests(fatal, when, error), pytest.MonkeyPatch()
    http, rpc, ssh = requests.Session.send, RPC._blocking, SshSession.run

    def send(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> Any:
        return sent.send(_http_name(request), lambda: http(session, request, **options))

    def block(call: Any, *arguments: Any, **options: Any) -> Any:
        name = bytes(call._method).decode() if isinstance(call._method, bytes) else str(call._method)
        return sent.send(name.rpartition("/")[2], lambda: rpc(call, *arguments, **options))

    def run(session: SshSession, *arguments: Any, **options: Any) -> Any:
        return sent.send("ssh", lambda: ssh(session, *arguments, **options))

    patch.setattr(requests.Session, "send", send)
    patch.setattr(RPC, "_blocking", block)
    patch.setattr(SshSession, "run", run)
    try:
        yield sent
    finally:
        patch.undo()


def _http_name(request: requests.PreparedRequest) -> str:
    """Return the method and the object of a request: `POST runs/r1/run.json`."""
    body = request.body if isinstance(request.body, bytes) else b""
    named = re.search(rb'"name": ?"([^"]+)"', body[:2000])
    path = unquote((request.url or "").partition("?")[0])
    return f"{request.method} {named[1].decode() if named else path.rpartition('/o/')[2]}"


Command = Callable[..., CommandResult]
SCRIPT = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nprint("hello")\n'
RUN = ("run", "job.py", "--up", "v3-8", "--down", "--name", "r1", "--yes")
QUICK = (
    ("CreateNode", "before"), ("CreateNode", "after"),
    ("POST runs/r1/run.json", "after"),
    ("POST runs/r1/attempts/1/attempt.json", "after"),
    ("ssh", "before"), ("ssh", "after"),
    ("GET runs/r1/attempts/1/workers/0/status.json", "after"),
    ("DeleteNode", "before"), ("DeleteNode", "after"),
)  # fmt: skip
"""A request of each step, and when the command ends."""
MOST = {"before": 80, "after": 30}
"""Requests of the whole command, and of those that change something, and more: how often it looks depends on
the machine. After one that changes nothing is as before the next."""
STEPS = {"before": 1, "after": 1} if "TPUCTL_EVERY" in os.environ else {"before": 3, "after": 2}
"""Of how many one is tried."""
CHANGES = ("Create", "Delete", "POST", "PATCH", "DELETE", "ssh")
"""What the names of requests begin with that change something."""


@pytest.fixture(autouse=True)
def script(home: Path) -> None:
    Path("job.py").write_text(SCRIPT)


def run_and_end(tpuctl: Command, fatal: Callable[[str, int], bool], when: str) -> Requests:
    with ended_at(fatal, when) as sent:
        try:
            result = tpuctl(*RUN)
        except Killed:
            pass
        else:
            assert result.code == 0, result.err
            assert not sent.has_ended
    return sent


def check(tpuctl: Command, simulator: RunningSimulator, bucket: Bucket, names: list[str]) -> None:
    """The same command goes on, and ends as if nothing had been in its way."""
    result = tpuctl(*RUN)
    assert result.code == 0, (names, result.err)
    made = simulator.events.find(kind="transition", what="CREATING")
    assert len(made) == 1, (names, result.err)
    assert simulator.world.nodes.all() == []
    assert len(bucket.objects("runs/", glob="runs/*/run.json")) == 1
    assert StoredRun(bucket, "r1").attempt_numbers() == [1]
    assert Path("r1/logs/attempt-1-worker-0.log").read_text() == "hello\n"


@pytest.mark.parametrize(("request_name", "when"), QUICK)
def test_the_same_command_continues_after_a_kill(
    tpuctl: Command, simulator: RunningSimulator, bucket: Bucket, request_name: str, when: str
) -> None:
    sent = run_and_end(tpuctl, lambda name, _: name == request_name, when)
    assert sent.has_ended, sent.names
    check(tpuctl, simulator, bucket, sent.names)


@pytest.mark.parametrize(
    ("request_name", "when", "text"),
    [
        (
            "CreateNode",
            "after",
            "Interrupted; run 'r1' is not started yet, and node 'r1' in europe-west4-a may bill.",
        ),
        (
            "ssh",
            "after",
            "Interrupted; run 'r1' is not started yet, and node 'r1' in europe-west4-a may bill.",
        ),
        (
            "POST runs/r1/run.json",
            "before",
            "run 'r1' may have started, and goes on then, and node 'r1' in europe-west4-a bills.",
        ),
        (
            "DeleteNode",
            "after",
            "run 'r1' has ended, and its files are here, and node 'r1' in europe-west4-a bills.",
        ),
    ],
)
def test_the_same_command_continues_after_ctrl_c(
    tpuctl: Command, simulator: RunningSimulator, bucket: Bucket, request_name: str, when: str, text: str
) -> None:
    with ended_at(lambda name, _: name == request_name, when, KeyboardInterrupt) as sent:
        result = tpuctl(*RUN)
    assert (result.code, text in result.err) == (130, True), result.err
    assert "Continue: tpuctl run job.py --up v3-8 --down --name r1\n" in result.err
    assert "Delete the node: tpuctl down r1" in result.err
    check(tpuctl, simulator, bucket, sent.names)


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.parametrize(
    ("when", "number"), [(when, number) for when in MOST for number in range(0, MOST[when], STEPS[when])]
)
def test_the_same_command_continues_after_a_kill_anywhere(
    tpuctl: Command, simulator: RunningSimulator, bucket: Bucket, when: str, number: int
) -> None:
    places = itertools.count()

    def is_fatal(name: str, _: int) -> bool:
        return (when == "before" or name.startswith(CHANGES)) and next(places) == number

    sent = run_and_end(tpuctl, is_fatal, when)
    check(tpuctl, simulator, bucket, sent.names)
