"""Starting the program on a host: how long its answer is waited for, and what each answer means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.flows.nodes.memory_provider import node
from tests.worker.host import SPEC
from tpuctl.cloud.ssh import CommandResult
from tpuctl.errors import HostError
from tpuctl.flows.runs.launch import launch, launch_all, stop
from tpuctl.nodes import Node
from tpuctl.worker import timing
from tpuctl.worker.records import Spec


class RecordingSsh:
    """Hosts that answer `launch` with what `answers` has for their worker: output, and errors."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self._answers = answers
        self.commands: list[tuple[int, tuple[str, ...]]] = []
        self.timeouts: list[float] = []
        self.files: list[str] = []

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[RecordingSession]:
        yield RecordingSession(self, worker)

    def answer(self, worker: int) -> CommandResult:
        return CommandResult(0, *self._answers[worker])


class RecordingSession:
    """A connection to one worker."""

    def __init__(self, ssh: RecordingSsh, worker: int) -> None:
        self._ssh = ssh
        self._worker = worker

    def run(self, argv: Sequence[str], timeout: float = 0.0) -> CommandResult:
        self._ssh.commands.append((self._worker, tuple(argv)))
        if argv[0] != "python3":
            return CommandResult(0, "", "")
        self._ssh.timeouts.append(timeout)
        return self._ssh.answer(self._worker)

    def put(self, data: bytes, path: str) -> None:
        self._ssh.files.append(path)


def started(pid: int) -> tuple[str, str]:
    return json.dumps({"pid": pid}), ""


def spec(worker: int) -> Spec:
    return replace(SPEC, worker=worker, workers=2)


def test_the_program_has_the_time_to_give_up_by_itself() -> None:
    """Else SSH would end first, and the reason be lost."""
    ssh = RecordingSsh(started(7))
    assert launch(ssh, node(), "key", b"zip", spec(0)) == 7  # type: ignore[arg-type]
    assert ssh.timeouts == [180.0]
    assert ssh.timeouts[0] >= timing.START_TIMEOUT + 30


def test_program_and_spec_are_copied_into_the_attempts_folder_first() -> None:
    ssh = RecordingSsh(started(7))
    launch(ssh, node(), "key", b"zip", spec(0))  # type: ignore[arg-type]
    folder = ".tpuctl/runs/r1/1"
    assert ssh.files == [f"{folder}/worker.zip", f"{folder}/spec.json"]
    assert ssh.commands == [
        (0, ("install", "-d", "-m", "700", ".tpuctl", folder)),
        (0, ("python3", f"{folder}/worker.zip", "launch", f"{folder}/spec.json")),
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((json.dumps({"error": "no answer in 120 s"}), "ignored"), "no answer in 120 s"),
        (("", "Traceback\npython3: not found\n"), "python3: not found"),
        (("", ""), "no answer"),
        (("no JSON", "the last\nline"), "line"),
        ((json.dumps({"pid": "x"}), "text"), "text"),
    ],
)
def test_an_answer_without_a_pid_is_an_error_with_the_reason(answer: tuple[str, str], reason: str) -> None:
    with pytest.raises(HostError) as failed:
        launch(RecordingSsh(answer), node(), "key", b"zip", spec(0))  # type: ignore[arg-type]
    assert failed.value.message == f"Worker 0 could not start the script: {reason}."


def test_what_a_login_prints_before_the_answer_is_passed_over() -> None:
    out, err = started(7)
    assert launch(RecordingSsh((f"Welcome!\n{out}\n", err)), node(), "key", b"zip", spec(0)) == 7  # type: ignore[arg-type]


def test_a_failure_on_one_worker_stops_those_that_started() -> None:
    ssh = RecordingSsh(started(7), (json.dumps({"error": "no disk"}), ""))
    with pytest.raises(HostError, match="Worker 1 could not start the script: no disk"):
        launch_all(ssh, node(), {0: "key", 1: "key"}, [spec(0), spec(1)])  # type: ignore[arg-type]
    assert [command for command in ssh.commands if command[1][0] == "kill"] == [(0, ("kill", "-TERM", "7"))]


def test_a_worker_that_cannot_be_reached_is_not_stopped_and_no_error() -> None:
    class Unreachable(RecordingSsh):
        @contextmanager
        def connect(self, node: Node, worker: int, host_key: str) -> Iterator[RecordingSession]:
            raise HostError("No route.")
            yield

    stop(Unreachable(), node(), 0, "key", 7)  # type: ignore[arg-type]
