"""What the client of the control server sends, and which error an answer is."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tpuctl.cloud.simulator.process import ActiveFault, ControlClient
from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError, UsageError
from tpuctl.simulator_folder import SimulatorFolder

FAULT = {"id": "f1", "kind": "preempt", "options": {}, "state": "waiting", "taken": 0, "left": None}


class Server(HTTPServer):
    """Answers as the test says, and notes what was asked."""

    status = 200
    answer: bytes = json.dumps({"faults": [{**FAULT, "origin": "command"}]}).encode()
    requests: list[tuple[str, str, str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = self.headers["Authorization"]
        self.server.requests.append((self.command, self.path, token, json.loads(body) if body else None))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.requests = []
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        content = {"url": f"http://127.0.0.1:{running.server_port}", "token": "secret"}
        SimulatorFolder(tmp_path).control.write_text(json.dumps(content))
        yield running
        running.shutdown()
        thread.join()


def test_each_call_is_a_request_with_the_token(server: Server, tmp_path: Path) -> None:
    client = ControlClient(tmp_path)
    fault = ActiveFault("f1", "preempt", {}, "waiting", 0, None, "command")
    assert client.faults() == [fault]
    assert client.add([]) == [fault]
    assert client.add([], "storm") == [fault]
    client.remove("a/b c")
    client.clear()
    assert [(method, path, content) for method, path, _, content in server.requests] == [
        ("GET", "/v1/faults", None),
        ("POST", "/v1/faults", {"faults": [], "scenario": None}),
        ("POST", "/v1/faults", {"faults": [], "scenario": "storm"}),
        ("DELETE", "/v1/faults/a%2Fb%20c", None),
        ("DELETE", "/v1/faults", None),
    ]
    assert {token for _, _, token, _ in server.requests} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("status", "kind"), [(400, UsageError), (404, NotFoundError), (409, StateError), (500, StateError)]
)
def test_a_refusal_has_the_servers_words(
    server: Server, tmp_path: Path, status: int, kind: type[TpuctlError]
) -> None:
    server.status, server.answer = status, b'{"message": "There is no fault.", "hint": "Look."}'
    with pytest.raises(kind) as refused:
        ControlClient(tmp_path).remove("f1")
    assert type(refused.value) is kind
    assert (refused.value.message, refused.value.hint) == ("There is no fault.", "Look.")


def test_an_answer_that_is_none_and_a_server_that_is_gone_do_not_answer(
    server: Server, tmp_path: Path
) -> None:
    server.answer = b"<html>"
    client = ControlClient(tmp_path)
    with pytest.raises(DeadlineError) as silent:
        client.faults()
    assert silent.value.message == "The simulator does not answer."
    assert silent.value.hint == "'tpuctl sim status' shows it."
    with socket.socket() as unheard:  # a port that nobody listens at, and nobody else can take
        unheard.bind(("127.0.0.1", 0))
        gone = {"url": f"http://127.0.0.1:{unheard.getsockname()[1]}", "token": ""}
        SimulatorFolder(tmp_path).control.write_text(json.dumps(gone))
        with pytest.raises(DeadlineError, match="does not answer"):
            ControlClient(tmp_path).clear()


@pytest.mark.parametrize("content", [None, "{", '{"url": "x"}'])
def test_a_simulator_without_a_control_server_is_of_another_version(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        SimulatorFolder(tmp_path).control.write_text(content)
    with pytest.raises(StateError) as other:
        ControlClient(tmp_path)
    assert other.value.message == "The simulator that runs is of another version."
    assert other.value.hint == "Stop it: tpuctl sim stop"
