"""sim start, stop, status, reset and logs, their fields in JSON, and what `sim start --iam` enforces."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator.process import is_locked
from tpuctl.config import load
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts.programs.processes import snapshot, world_mark

Tpuctl = Callable[..., CommandResult]


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of a simulator that is gone after the test."""
    place = tmp_path / "state" / "sim"
    yield place
    simulator_process.reset(place)
    assert not host_processes(place)


def host_processes(folder: Path) -> list[int]:
    mark = world_mark(folder / "hosts")
    return [process.pid for process in snapshot() if process.mark.startswith(mark)]


def is_stopped(folder: Path) -> bool:
    return simulator_process.running(folder) is None


def kill(folder: Path) -> None:
    """Kill the simulator, and wait until its lock is free."""
    endpoints = simulator_process.running(folder)
    assert endpoints
    os.kill(endpoints.pid, signal.SIGKILL)
    poll(lambda: is_stopped(folder) or None, awaiting="its end", timeout=60, backoff=Backoff(0.02, 0.1))


@pytest.fixture
def busy_host(folder: Path, tpuctl) -> Path:
    """A node with two programs on its host, one of them detached; their simulator has been killed."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    key = load({}).require("ssh_key")
    user = load({}).require("ssh_user")
    address = tpuctl("ls", "--json").json["nodes"][0]["addresses"][0]
    ssh = ["ssh", "-F", str(folder / "hosts.ssh_config"), "-i", key, "-l", user]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    command = "nohup setsid sleep 3600 > out 2>&1 < /dev/null & exec sh -c 'sleep 3600 >/dev/null 2>&1 &'"
    subprocess.run([*ssh, *options, address, command], check=True, timeout=60)
    poll(
        lambda: len(host_processes(folder)) >= 2 or None,
        awaiting="two programs",
        timeout=60,
        backoff=Backoff(0.02),
    )
    kill(folder)
    assert len(host_processes(folder)) >= 2, "programs keep running without the simulator, as they should"
    return folder


def test_hosts_are_reached_where_the_state_folder_is_relative(
    home: Path, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs on hosts have other working folders: no host answered over SSH."""
    monkeypatch.setenv("TPUCTL_STATE", "state")
    simulator = RunningSimulator(Path("state/sim"))
    try:
        assert simulator.simulator.folder.is_absolute()
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
        assert tpuctl("exec", "n1", "--", "pwd").out.startswith(str(simulator.simulator.folder / "hosts"))
    finally:
        simulator.close()


def test_stop_ends_what_a_killed_simulator_left(busy_host: Path, tpuctl) -> None:
    count = len(host_processes(busy_host))
    result = tpuctl("sim", "stop")
    assert result.code == 0
    assert result.err.splitlines() == [
        "The simulator was not running.",
        f"It had been killed: {count} programs still running on its hosts ended.",
    ]
    assert not host_processes(busy_host)
    assert tpuctl("sim", "stop").err == "The simulator was not running.\n"
    assert [node["name"] for node in tpuctl("ls", "--json").json["nodes"]] == ["n1"], "nodes stay"


def test_reset_ends_them_too_and_keeps_nothing(busy_host: Path, tpuctl) -> None:
    assert tpuctl("sim", "reset").code == 10, "it asks, and there is no terminal"
    assert host_processes(busy_host)
    result = tpuctl("sim", "reset", "--yes")
    assert result.code == 0, result.err
    assert f"everything in {busy_host}" in result.err
    assert not host_processes(busy_host)
    assert {path.name for path in busy_host.iterdir()} == {"simulator.lock", "starting.lock"}
    assert tpuctl("ls", "--json").json["nodes"] == []


def test_reset_stops_a_running_simulator(folder: Path, tpuctl) -> None:
    assert tpuctl("sim", "start").code == 0
    assert tpuctl("sim", "reset", "-y").err.endswith("The simulator has stopped, and its state is deleted.\n")
    assert tpuctl("sim", "status", "--json").json["running"] is False
    assert not is_locked(folder / "simulator.lock")


def test_reset_of_nothing_says_so(home: Path, tpuctl) -> None:
    assert tpuctl("sim", "reset").err == "The simulator has no state.\n"


def test_reset_says_what_cannot_be_deleted(folder: Path, tpuctl, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gcs").mkdir(parents=True)

    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("tpuctl.cloud.simulator.process.shutil.rmtree", fail)  # root may delete anything
    result = tpuctl("sim", "reset", "--yes")
    assert result.code == 8
    assert f"{folder / 'gcs'} cannot be deleted: Permission denied." in result.err
    monkeypatch.undo()
    monkeypatch.setenv("TPUCTL_STATE", str(folder.parent))


def test_logs_show_what_went_wrong(folder: Path, tpuctl) -> None:
    assert "nothing went wrong" in tpuctl("sim", "logs").err
    assert tpuctl("sim", "start").code == 0
    with (folder / "simulator.log").open("a") as log:
        log.write("one\ntwo\nthree\nhalf")
    assert tpuctl("sim", "logs", "--last", "2").out == "two\nthree\n"
    assert tpuctl("sim", "logs", "--tail", "1").out == "three\n"
    assert tpuctl("sim", "logs").out == "one\ntwo\nthree\n"


def test_ctrl_c_is_an_interruption_also_without_a_terminal(folder: Path, tpuctl) -> None:
    assert tpuctl("sim", "start").code == 0
    (folder / "simulator.log").write_text("one\n")
    command = [str(Path(sys.executable).parent / "tpuctl"), "sim", "logs", "--follow"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as following:
        assert following.stdout
        assert following.stdout.readline() == "one\n"
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=60)
    assert (following.returncode, err) == (130, "\nInterrupted.\n")


def test_logs_are_followed_until_the_simulator_stops(folder: Path, tpuctl) -> None:
    assert tpuctl("sim", "start").code == 0
    command = [str(Path(sys.executable).parent / "tpuctl"), "sim", "logs", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        with (folder / "simulator.log").open("a") as log:
            log.write("one\n")
        assert following.stdout.readline() == "one\n"
        assert tpuctl("sim", "stop").code == 0
        assert following.wait(60) == 0


def test_a_long_log_is_put_aside_by_the_next_start(folder: Path, tpuctl) -> None:
    folder.mkdir(parents=True)
    (folder / "simulator.log").write_bytes(b"x" * ((8 << 20) + 1))
    assert tpuctl("sim", "start").code == 0
    assert "x" * 9 not in (folder / "simulator.log").read_text()  # a slow machine may be warned of there
    assert (folder / "simulator.log.1").stat().st_size == (8 << 20) + 1


def test_its_files_are_private_under_any_umask(folder: Path, tpuctl) -> None:
    """Whoever could write to the state folder could put another simulator in the place of this one."""
    earlier = os.umask(0)
    try:
        assert tpuctl("up", "v3-8", "--yes").code == 0
    finally:
        os.umask(earlier)
    folders = (folder.parent, folder, folder.parent / "ssh")
    assert [oct(place.stat().st_mode & 0o777) for place in folders] == ["0o700"] * 3
    readable = [path.name for path in folder.iterdir() if path.is_file() and path.stat().st_mode & 0o077]
    assert readable == []


def test_a_simulator_that_runs_keeps_its_setting(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    assert tpuctl("sim", "start", "--egress", "pass", "--json").json["egress"] == "pass"
    refused = tpuctl("sim", "start", "--egress", "refuse")
    assert refused.code == 4
    assert "runs already, with --egress pass" in refused.err
    assert tpuctl("sim", "status", "--json").json["external_ips"]
    refused = tpuctl("sim", "start", "--no-external-ips")
    assert refused.code == 4
    assert "runs already, and gives external addresses" in refused.err


ZONE = "europe-west4-a"


def cells(text: str) -> list[list[str]]:
    """Return the cells of each line."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_the_state_of_a_simulator(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    status = tpuctl("sim", "status", "--json").json
    fields = "schema running pid project bucket tpu_grpc tpu_rest storage egress external_ips iam "
    fields += "default_account firewall python folder"
    assert " ".join(status) == fields
    assert (status["running"], status["project"], status["bucket"]) == (
        True,
        "sim-project",
        "sim-project-tpuctl",
    )
    assert (status["iam"], status["folder"]) == (None, str(simulator.folder))
    shown = dict(line for line in cells(tpuctl("sim", "status").out) if len(line) == 2)
    assert shown == {
        "running": "True",
        "pid": str(status["pid"]),
        "project": "sim-project",
        "bucket": "sim-project-tpuctl",
        "Cloud TPU API (gRPC)": status["tpu_grpc"],
        "Cloud TPU API (REST)": status["tpu_rest"],
        "Cloud Storage": status["storage"],
        "egress": status["egress"],
        "external_ips": str(status["external_ips"]),
        "iam": "not enforced",
        "default_account": "editor",
        "firewall": "open",
        "python": f"{platform.python_version()}, this machine's; that of images is 3.10: "
        "tpuctl sim start --python image",
        "folder": status["folder"],
    }


def test_without_a_simulator_each_command_says_so(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "status", "--json").json == {"schema": 1, "running": False}
    said = tpuctl("sim", "status")
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines() == ["The simulator is not running.", "Next: tpuctl sim start"]
    for command in (("ls",), ("rm", "f1"), ("rm", "--all")):
        refused = tpuctl("sim", "fault", *command)
        assert refused.code == 4
        assert refused.err.splitlines() == [
            "Error: The simulator is not running.",
            "Hint: Start it: tpuctl sim start",
        ]


def test_faults_are_added_listed_and_removed(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    none = tpuctl("sim", "fault", "ls")
    assert (none.out, none.err) == ("", "There are no faults.\n")
    added = tpuctl("sim", "fault", "add", "stockout", "--zone", ZONE, "--count", "3", "--json").json
    assert " ".join(added) == "schema faults"
    (first,) = added["faults"]
    assert " ".join(first) == "id kind options state taken left origin"
    assert first == {
        "id": first["id"], "kind": "stockout", "options": first["options"], "state": "in force", "taken": 0,
        "left": 3, "origin": first["origin"],
    }  # fmt: skip
    assert first["options"]["zone"] == ZONE
    shown = tpuctl("sim", "fault", "add", "zone-denied", "--zone", "us-east1-d")
    header, row = cells(shown.out)
    assert header == ["ID", "KIND", "OPTIONS", "STATE", "FIRED", "LEFT", "FROM"]
    assert row[1:4] == ["zone-denied", "zone=us-east1-d", "in force"]
    assert row[4:6] == ["0", "-"]
    assert shown.err.splitlines()[-1] == f"Next: tpuctl sim fault rm {row[0]}"
    listed = tpuctl("sim", "fault", "ls", "--json").json["faults"]
    assert [fault["id"] for fault in listed] == [first["id"], row[0]]
    assert [line[0] for line in cells(tpuctl("sim", "fault", "ls").out)] == ["ID", first["id"], row[0]]
    assert tpuctl("sim", "fault", "rm", first["id"]).err == f"Removed {first['id']}.\n"
    assert tpuctl("sim", "fault", "rm", "--all").err == "Removed every fault.\n"
    assert tpuctl("sim", "fault", "ls", "--json").json["faults"] == []
    for wrong in ((), ("f1", "--all")):
        refused = tpuctl("sim", "fault", "rm", *wrong)
        assert refused.code == 2
        assert "Name faults by their ids, or all of them with --all." in refused.err


def test_the_kind_of_a_fault_comes_first(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    refused = tpuctl("sim", "fault", "add", "--zone", ZONE, "stockout")
    assert (refused.code, "The kind of fault comes first." in refused.err) == (2, True)
    assert tpuctl("sim", "fault", "add").out == tpuctl("sim", "fault", "add", "--help").out
    assert "stockout" in tpuctl("sim", "fault", "add", "-h").out


def test_events_are_lines_and_objects(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    tpuctl("sim", "fault", "add", "stockout", "--zone", ZONE)
    tpuctl("ls")
    objects = [msgspec.json.decode(line) for line in tpuctl("sim", "events", "--json").out.splitlines()]
    fields = "schema kind what resource detail time service number body"
    assert {" ".join(event) for event in objects} == {fields}
    assert {event["kind"] for event in objects} >= {"request"}
    lines = tpuctl("sim", "events").out.splitlines()
    assert len(lines) >= len(objects)
    for line, event in zip(lines, objects, strict=False):
        assert re.match(r"\d\d:\d\d:\d\d\.\d{3}  ", line)
        assert line[14:].split()[:3] == [event["service"], event["kind"], event["what"].split()[0]]
    assert len(tpuctl("sim", "events", "--tail", "2").out.splitlines()) == 2
    assert tpuctl("sim", "events", "--tail", "0").out == ""
    requests = tpuctl("sim", "events", "--kind", "request", "--json").out.splitlines()
    assert {msgspec.json.decode(line)["kind"] for line in requests} == {"request"}
    assert len(requests) >= sum(event["kind"] == "request" for event in objects) > 0


STATE = ROOT / "tests/terraform/recorded/minimal-rights.json"


@pytest.fixture
def stopped(home: Path, tpuctl: Tpuctl) -> Iterator[None]:
    """No simulator runs, before the test and after it."""
    yield
    assert tpuctl("sim", "stop").code == 0


@pytest.fixture
def applied(stopped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project of terraform's minimal example, with its state in iam.json."""
    monkeypatch.setenv("TPUCTL_TARGET", "sim")
    monkeypatch.setenv("TPUCTL_PROJECT", "demo-project-1")
    monkeypatch.setenv("TPUCTL_BUCKET", "demo-project-1-tpuctl-runs")
    Path("iam.json").write_bytes(STATE.read_bytes())


@pytest.mark.usefixtures("applied")
def test_roles_of_a_state_are_enforced_for_the_user_until_it_stops(tpuctl: Tpuctl) -> None:
    started = tpuctl("sim", "start", "--iam", "iam.json", "--iam-user", "user:eve@example.com")
    assert started.code == 0, started.err
    assert "enforced, this shell as user:eve@example.com" in started.out
    denied = tpuctl("ls", "--zone", "europe-west4-a")
    assert denied.code == 3, denied.out
    assert "Permission 'tpu.nodes.list' denied" in denied.err
    assert "Ask an owner of the project for the role roles/tpu.admin." in denied.err

    other = tpuctl("sim", "start", "--iam", "iam.json", "--iam-user", "user:ada@example.com")
    assert other.code == 4
    assert "The simulator runs already, as user:eve@example.com." in other.err

    assert tpuctl("sim", "stop").code == 0
    free = tpuctl("sim", "start", "--json")
    assert free.json["iam"] is None
    assert tpuctl("ls", "--zone", "europe-west4-a").code == 0
    unenforced = tpuctl("sim", "start", "--iam")
    assert unenforced.code == 4
    assert "The simulator runs already, without --iam." in unenforced.err


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_a_default_account_without_a_role_can_neither_write_nor_delete(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "start", "--default-account", "none").code == 0
    asked = tpuctl("up", "v3-8", "--ttl", "2h", "--name", "n1", "--yes")
    assert asked.code == 0
    assert "let it use the bucket: gcloud storage buckets add-iam-policy-binding" in asked.err
    assert "--role roles/tpu.admin" in asked.err
    Path("job.py").write_text("print('done')\n")
    refused = tpuctl("submit", "job.py")
    assert refused.code == 3, refused.err
    assert "-compute@developer.gserviceaccount.com, may not write into gs://sim-project-tpuctl" in refused.err
    assert "gcloud storage buckets add-iam-policy-binding gs://sim-project-tpuctl/" in refused.err
    assert "Node 'n1' bills." in refused.err
    other = tpuctl("sim", "start", "--default-account", "editor", "--firewall", "open")
    assert (other.code, "runs already, with --default-account none" in other.err) == (4, True)


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_a_closed_firewall_is_said_before_anything_bills(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "start", "--firewall", "closed").code == 0
    asked = tpuctl("up", "v3-8")
    assert asked.code == 10
    assert "No firewall rule of default lets machines outside of it reach port 22" in asked.err


@pytest.mark.usefixtures("stopped")
def test_without_a_file_the_user_owns_the_project_and_hosts_are_editors(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "start", "--iam").code == 0
    assert tpuctl("up", "v3-8", "--yes").code == 0
    Path("job.py").write_text("print('done')\n")
    assert tpuctl("submit", "job.py").code == 0
    assert tpuctl("logs", "-f").out == "done\n"


@pytest.mark.usefixtures("applied")
def test_hosts_with_the_rights_of_terraform_end_with_the_one_whose_script_fails(tpuctl: Tpuctl) -> None:
    """They overwrite the decision that all start by the one that all end."""
    assert tpuctl("sim", "start", "--iam", "iam.json", "--iam-user", "user:ada@example.com").code == 0
    account = "tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
    up = tpuctl(
        "up", "v4-16", "--framework", "jax", "--zone", "us-central2-b", "--service-account", account, "--yes"
    )
    assert up.code == 0, up.err
    header = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    script = "import os, sys, time\nos.environ['TPUCTL_WORKER'] == '1' and sys.exit(3)\ntime.sleep(900)\n"
    Path("job.py").write_text(header + script)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    ended = tpuctl("wait", "r1", "--timeout", "5m")
    assert ended.code == 100, ended.err
    assert "worker 1" in ended.err
    assert "decision.json" not in tpuctl("logs", "r1").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--iam", "gone.json"), "gone.json cannot be read: No such file or directory"),
        (("--iam", "job.json"), "job.json holds no resources that terraform has applied"),
        (("--iam", "--iam-user", "ada"), "'ada' names no account"),
        (("--iam-user", "user:ada@example.com"), "--iam-user is for roles that are enforced"),
    ],
)
@pytest.mark.usefixtures("stopped")
def test_a_mistake_is_named_before_anything_starts(
    tpuctl: Tpuctl, options: tuple[str, ...], message: str
) -> None:
    Path("job.json").write_text("{}")
    result = tpuctl("sim", "start", *options)
    assert result.code != 0
    assert message in result.err
    assert tpuctl("sim", "status", "--json").json == {"schema": 1, "running": False}
