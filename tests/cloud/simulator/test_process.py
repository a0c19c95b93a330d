"""The simulator as a process: started once, found by what it publishes, locked, and deleted whole."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tpuctl import simulator_folder
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import process
from tpuctl.cloud.simulator import process as launch
from tpuctl.cloud.simulator.event_log import Event, EventLog, SimulatorLog
from tpuctl.cloud.simulator.process import (
    PublishedEndpoints,
    end_orphans,
    exclusive,
    is_locked,
    read_endpoints,
    reset,
)
from tpuctl.errors import ConfigError, HostError
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import SimulatorFolder, rotated

ENSURE = (
    "import sys; from pathlib import Path; from tpuctl.cloud import simulator\n"
    "print(simulator.ensure(Path(sys.argv[1])).pid)"
)


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of a simulator that is stopped after the test."""
    place = tmp_path / "state" / "sim"
    yield place
    endpoints = simulator_process.running(place)
    if endpoints:
        os.kill(endpoints.pid, signal.SIGKILL)
        wait_until_stopped(place)


def wait_until_stopped(folder: Path) -> None:
    def stopped() -> bool | None:
        return None if simulator_process.running(folder) else True

    poll(stopped, awaiting="its end", timeout=60, backoff=Backoff(0.02, 0.1))


def locked(folder: Path) -> bool:
    return is_locked(folder / "simulator.lock")


def publish(files: SimulatorFolder, pid: int) -> PublishedEndpoints:
    """Publish what a simulator does once it serves."""
    served = PublishedEndpoints(pid, *["x"] * 8)
    files.endpoints.write_bytes(msgspec.json.encode(served))
    return served


def test_it_starts_is_found_and_stops(folder: Path) -> None:
    import requests

    assert simulator_process.running(folder) is None
    assert simulator_process.stop(folder) is False
    served = simulator_process.ensure(folder)
    assert simulator_process.running(folder) == served
    assert simulator_process.ensure(folder) == served, "not another one"
    assert requests.get(f"{served.storage}/storage/v1/b/{served.bucket}", timeout=60).status_code == 200
    assert simulator_process.stop(folder) is True
    assert simulator_process.running(folder) is None
    assert not locked(folder)


def test_two_starts_at_once_give_one_simulator(folder: Path) -> None:
    command = [sys.executable, "-c", ENSURE, str(folder)]
    starts = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in starts]
    assert [process.returncode for process in starts] == [0, 0], answers
    pids = {int(out) for out, _ in answers}
    endpoints = simulator_process.running(folder)
    assert endpoints
    assert pids == {endpoints.pid}


def test_what_a_killed_one_left_is_not_believed(folder: Path) -> None:
    first = simulator_process.ensure(folder)
    os.kill(first.pid, signal.SIGKILL)
    wait_until_stopped(folder)
    assert (folder / "endpoints.json").exists(), "a killed process cleans up nothing"
    assert simulator_process.running(folder) is None
    assert simulator_process.stop(folder) is False
    second = simulator_process.ensure(folder)
    assert second.pid != first.pid
    assert simulator_process.running(folder) == second


def test_what_a_killed_one_left_is_not_believed_while_the_next_one_starts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulator locks its folder before it publishes its endpoints; here, until the test releases it."""
    folder.mkdir(parents=True)
    publish(SimulatorFolder(folder), 1)
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport fcntl, os, time\n"
        f"lock = open({str(folder / 'simulator.lock')!r}, 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)\n"
        f"open({str(tmp_path / 'locked')!r}, 'w').close()\n"
        f"while not os.path.exists({str(tmp_path / 'checked')!r}): time.sleep(0.01)\n"
    )
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(simulator_process.ensure, folder)
        is_held = (tmp_path / "locked").exists
        poll(lambda: is_held() or None, awaiting="the lock", timeout=60, backoff=Backoff(0.01))
        endpoints = simulator_process.running(folder)
        (tmp_path / "checked").touch()
        with pytest.raises(HostError, match="did not start"):
            start.result(60)
    assert endpoints is None


def test_a_stop_beside_a_start_stops_what_is_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It found none, and the simulator ran on."""
    start_one, held = process.launch, process.exclusive
    launched, stops = threading.Event(), threading.Event()

    def launch_late(*arguments: Any) -> PublishedEndpoints:
        launched.set()
        assert stops.wait(60)
        return start_one(*arguments)

    @contextmanager
    def exclusive(path: Path) -> Iterator[None]:
        if launched.is_set():
            stops.set()
        with held(path):
            yield

    monkeypatch.setattr(process, "launch", launch_late)
    monkeypatch.setattr(process, "exclusive", exclusive)
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(simulator_process.ensure, folder)
        assert launched.wait(60)
        is_stopped = simulator_process.stop(folder)
        stops.set()
        start.result(120)
    assert is_stopped
    assert simulator_process.running(folder) is None


def test_one_that_an_interrupted_start_has_left_starting_is_waited_for(folder: Path) -> None:
    files = SimulatorFolder(folder)
    folder.mkdir(parents=True)
    with process.exclusive(files.lock), ThreadPoolExecutor(1) as pool:
        start = pool.submit(launch.launch, files, ())
        served = publish(files, os.getpid())
        assert start.result(60) == served
    assert not files.log.exists(), "no second one was started"


def test_one_that_an_interrupted_start_has_begun_may_lock_the_folder_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SimulatorFolder(folder)
    folder.mkdir(parents=True)
    held = ExitStack()

    def spawn(*_: object) -> subprocess.Popen[bytes]:
        held.enter_context(process.exclusive(files.lock))
        publish(files, os.getpid())
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(4)"])

    monkeypatch.setattr(launch, "_spawn", spawn)
    with held:
        assert launch.launch(files, ()).pid == os.getpid()


def test_a_stop_ends_one_that_an_interrupted_start_has_left_starting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SimulatorFolder(folder)
    folder.mkdir(parents=True)
    code = "import fcntl, signal, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, 2); signal.pause()"
    left = subprocess.Popen([sys.executable, "-c", code, str(files.lock)])
    poll(lambda: locked(folder) or None, awaiting="its lock", timeout=60, backoff=Backoff(0.01))

    def read_before_it_serves(files: SimulatorFolder) -> PublishedEndpoints | None:
        if not files.endpoints.exists():
            publish(files, left.pid)
            return None
        return read_endpoints(files)

    monkeypatch.setattr(launch, "read_endpoints", read_before_it_serves)
    assert simulator_process.stop(folder) is True
    assert left.wait(60) == -signal.SIGTERM


def test_one_that_cannot_start_says_why(folder: Path) -> None:
    with pytest.raises(
        HostError, match=r"The simulator did not start: .*unrecognized arguments: --nonsense"
    ) as failure:
        simulator_process.ensure(folder, "--nonsense")
    assert failure.value.hint == (
        f"Its log is {folder / 'simulator.log'}. The next command starts it without --nonsense."
    )


def test_missing_packages_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_folder, "PACKAGES", ("aiohttp", "no_such_server", "nor_this"))
    with pytest.raises(ConfigError, match=r"not installed: no_such_server, nor_this\.") as missing:
        simulator_process.ensure(folder)
    assert "pip install '.[sim]'" in missing.value.hint
    assert not folder.exists()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}"])
def test_garbage_in_the_endpoints_file_is_not_believed(simulator, data: bytes) -> None:
    (simulator.folder / "endpoints.json").write_bytes(data)
    assert simulator_process.running(simulator.folder) is None


def test_looking_does_not_wait_for_and_does_not_keep_the_lock(simulator) -> None:
    assert simulator_process.running(simulator.folder).pid == os.getpid()
    assert not is_locked(simulator.folder / "no-such.lock")
    free = simulator.folder / "free.lock"
    free.touch()
    assert [is_locked(free) for _ in range(2)] == [False, False]


def test_its_state_comes_back_after_a_stop(folder: Path, tpuctl) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    assert tpuctl("sim", "stop").code == 0
    assert [node["name"] for node in tpuctl("ls", "--json").json["nodes"]] == ["n1"]
    assert tpuctl("down", "--yes").code == 0
    assert tpuctl("sim", "stop").code == 0


def test_a_lock_is_held_while_the_block_runs(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists(), "a look makes no file"
    with exclusive(path):
        assert is_locked(path)
        assert path.stat().st_mode & 0o777 == 0o600
    assert not is_locked(path)


def test_who_only_looks_is_not_in_the_way_of_another_look(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert not is_locked(path)


def test_an_error_gives_the_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    try:
        with exclusive(path):
            raise KeyError
    except KeyError:
        pass
    assert not is_locked(path)


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    path, order, waits = tmp_path / "lock", list[str](), threading.Event()

    def second() -> None:
        waits.set()
        with exclusive(path):
            order.append("second")

    thread = threading.Thread(target=second, daemon=True)
    with exclusive(path):
        thread.start()
        waits.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert os.path.exists(path), "a lock that is deleted locks nobody out"


NAMES = "project bucket tpu_grpc tpu_rest storage proxy hosts_file ca_file"
LEAST = {"pid": 7, **{name: f"the {name}" for name in NAMES.split()}}


@pytest.fixture
def own_folder(tmp_path: Path) -> SimulatorFolder:
    return SimulatorFolder(tmp_path)


def test_a_simulator_that_has_not_started_completely_publishes_nothing(own_folder: SimulatorFolder) -> None:
    assert read_endpoints(own_folder) is None
    for content in (b"", b"{", b"[]", json.dumps({**LEAST, "pid": "7"}).encode()):
        own_folder.endpoints.write_bytes(content)
        assert read_endpoints(own_folder) is None


def test_what_an_earlier_version_does_not_publish_has_its_default(own_folder: SimulatorFolder) -> None:
    own_folder.endpoints.write_text(json.dumps({**LEAST, "unknown": 1}))
    endpoints = read_endpoints(own_folder)
    assert endpoints is not None
    assert {name: getattr(endpoints, name) for name in LEAST} == LEAST
    names = ("billing_rest", "quota_rest", "compute_rest", "iap_relay", "iam")
    assert [getattr(endpoints, name) for name in names] == [""] * 5
    assert (endpoints.egress, endpoints.external_ips, endpoints.environment) == ("pass", True, {})
    assert endpoints.schema == 1


def line(number: int) -> str:
    fields = {"kind": "k", "what": "w", "resource": "r", "detail": "d", "time": 1.5, "service": "tpu"}
    return json.dumps({**fields, "number": number}) + "\n"


def test_events_are_read_once_and_those_that_were_cut_are_left_out(own_folder: SimulatorFolder) -> None:
    log = EventLog(own_folder.events.parent)
    assert log.new() == []
    rotated(own_folder.events).write_text(line(1))
    own_folder.events.write_text(line(2) + "\n" + '{"kind": "k"}\n' + line(3)[:9] + "\n" + line(4))
    assert [event.number for event in log.new()] == [1, 2, 4]
    assert log.new() == []
    with own_folder.events.open("a") as stream:
        stream.write(line(5) + line(6)[:-1])
    (event,) = log.new()
    assert event == Event("k", "w", "r", "d", 1.5, "tpu", 5)
    assert event.body is None


def test_the_log_is_read_line_by_line(own_folder: SimulatorFolder) -> None:
    log = SimulatorLog(own_folder.log.parent)
    assert log.path == own_folder.log
    assert log.new() == []
    own_folder.log.write_bytes(b"first\nnot UTF-8 \xff\nwithout an end")
    assert log.new() == ["first", "not UTF-8 �"]
    with own_folder.log.open("ab") as stream:
        stream.write(b"\n")
    assert log.new() == ["without an end"]


@pytest.fixture
def left_folder(tmp_path: Path) -> Path:
    made = tmp_path / "sim"
    (made / "objects/deep").mkdir(parents=True)
    (made / "objects/deep/x").touch()
    (made / "events.jsonl").touch()
    return made


def python_that(monkeypatch: pytest.MonkeyPatch, left_folder: Path, script: str) -> None:
    """Replace the Python that ends programs by a script: a real one has none to fail at."""
    program = left_folder.parent / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(process, "sys", SimpleNamespace(executable=str(program)))


def test_all_but_the_locks_is_deleted_and_no_link_followed(left_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (left_folder / "link").symlink_to(tmp_path / "mine")
    reset(left_folder)
    files = SimulatorFolder(left_folder)
    assert set(left_folder.iterdir()) == {files.starting_lock, files.lock}
    assert (tmp_path / "mine").is_dir()
    reset(left_folder)


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    reset(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_deleted_is_named(left_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(13, os.strerror(13), str(path))

    monkeypatch.setattr(process, "shutil", SimpleNamespace(rmtree=refuse))  # root may delete anything
    with pytest.raises(HostError) as refused:
        reset(left_folder)
    assert refused.value.message == f"{left_folder}/objects cannot be deleted: Permission denied."
    assert refused.value.hint == f"Delete it by hand: {left_folder}"


def test_without_hosts_there_is_no_program_to_end(left_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that(monkeypatch, left_folder, "echo 9")
    assert end_orphans(left_folder) == 0
    SimulatorFolder(left_folder).hosts.mkdir()
    assert end_orphans(left_folder) == 9


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo first >&2; echo it is busy. >&2; exit 1", "it is busy"), ("exit 3", "no message")],
)
def test_programs_that_cannot_be_ended_are_an_error(
    left_folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    python_that(monkeypatch, left_folder, script)
    SimulatorFolder(left_folder).hosts.mkdir()
    with pytest.raises(HostError) as refused:
        reset(left_folder)
    assert refused.value.message == (
        f"The programs that a killed simulator left running could not be ended: {reason}."
    )
    assert refused.value.hint == "The next start ends them, too: tpuctl sim start"
    assert (left_folder / "objects/deep/x").exists()
