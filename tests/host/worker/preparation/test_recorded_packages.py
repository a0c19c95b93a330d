"""A host says which packages the script could import, once it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.host.worker.host import Host
from tests.host.worker.preparation.wheels import wheel
from tpuctl import runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.provenance import HostEnvironment

NAME = RunPaths("r1").environment(1, 0)


def recorded(host: Host) -> HostEnvironment:
    return runs.decode(host.bucket.read(NAME), HostEnvironment, NAME)


def test_what_was_installed_is_told_from_what_the_host_has(host: Host, tmp_path: Path) -> None:
    wheel(tmp_path, "tpuctl_wheel_of_a_test", "1.2")
    host.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    host.start("print('ran')", dependencies=["tpuctl-wheel-of-a-test"])
    assert host.finished().exit_code == 0, host.log().decode()
    record = recorded(host)
    assert record.installed == {"tpuctl-wheel-of-a-test": "1.2"}
    assert record.image["msgspec"]
    assert record.python == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    "script", ["", "import sys; sys.exit(3)", "import os, signal; os.kill(os.getpid(), 9)"]
)
def test_it_is_there_when_the_last_word_is(host: Host, script: str) -> None:
    host.start(script)
    host.finished()
    assert recorded(host).image["msgspec"]


def test_a_script_that_did_not_start_has_imported_nothing(host: Host) -> None:
    host.start("print('never')", setup="exit 3")
    assert host.finished().error
    assert host.bucket.stat(NAME) is None


def test_what_the_setup_command_installs_counts(host: Host, tmp_path: Path) -> None:
    wheel(tmp_path, "tpuctl_wheel_of_a_test", "1.2")
    folder = tmp_path / "by setup"
    command = f"{sys.executable} -m zipfile -e {tmp_path}/*.whl '{folder}'"
    host.start("", setup=command, environment={"PYTHONPATH": str(folder)})
    assert host.finished().exit_code == 0, host.log().decode()
    assert recorded(host).image["tpuctl-wheel-of-a-test"] == "1.2"
