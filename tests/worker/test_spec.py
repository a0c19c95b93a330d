"""The spec's values are on the host's disk for a moment only, and on no command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.worker.host import Host
from tpuctl.polling import Backoff, poll

SECRET = "a-value-" + "that-nobody-may-read"
WAITING = "import pathlib, time\nwhile not pathlib.Path('../end').exists():\n  time.sleep(0.05)\n"


def files_with_the_value(host: Host) -> list[str]:
    files = [path for path in host.folder.rglob("*") if path.is_file()]
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


def test_the_value_is_in_no_file_and_on_no_command_line_while_the_script_runs(host: Host) -> None:
    host.start(WAITING, environment={"API_KEY": SECRET})
    poll(lambda: host.status().pid or None, awaiting="the script", timeout=60, backoff=Backoff(0.05))
    assert files_with_the_value(host) == []
    lines = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    assert SECRET.encode() not in lines
    (supervisor,) = host.supervisors()
    assert Path(f"/proc/{supervisor}/fd/0").readlink() == Path("/dev/null")
    (host.folder / "end").touch()
    assert host.finished().exit_code == 0


@pytest.mark.parametrize("damage", [{}, {"schema": 2}, {"environment": 3}])
def test_a_spec_that_cannot_be_used_is_deleted_and_not_quoted(host: Host, damage: dict[str, object]) -> None:
    path = host.prepare("print(1)\n", environment={"API_KEY": SECRET})
    content = {**json.loads(path.read_text()), **damage} if damage else {"schema": 1, "environment": SECRET}
    path.write_text(json.dumps(content))
    process = host.launch()
    assert not path.exists()
    assert SECRET not in process.stdout + process.stderr
    assert files_with_the_value(host) == []


def test_a_second_spec_of_an_attempt_is_deleted_too(host: Host) -> None:
    path = host.prepare("print(1)\n", environment={"API_KEY": SECRET})
    content = path.read_bytes()
    assert host.launch().returncode == 0
    path.write_bytes(content)
    assert "started on this host before" in host.launch().stdout
    assert files_with_the_value(host) == []
