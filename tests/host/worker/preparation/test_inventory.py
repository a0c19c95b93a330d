"""Which packages a script can import, without parsing their metadata.

A host says which packages the script could import, once it runs.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.host.worker.host import Host
from tests.host.worker.preparation.wheels import wheel
from tpuctl import runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.host.worker.preparation import inventory
from tpuctl.host.worker.preparation.steps import Prepared
from tpuctl.host.worker.requirements import normalized
from tpuctl.provenance import HostEnvironment


def environment(installed: str = "", variables: dict[str, str] | None = None) -> HostEnvironment:
    """The record as a reader has it."""
    record = inventory.record(Prepared("", installed), variables or {})
    return runs.decode(record, HostEnvironment, "environment.json")


def package(folder: Path, entry: str, **files: str) -> None:
    (folder / entry).mkdir(parents=True)
    for name, text in files.items():
        (folder / entry / name.replace("__", ".")).write_text(text)


def test_it_is_what_pythons_own_reader_says() -> None:
    truth: dict[str, str] = {}
    for distribution in metadata.distributions():
        truth.setdefault(normalized(distribution.metadata["Name"]), distribution.version)
    found = environment()
    assert found.resolved == truth
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert (found.system, found.processor) == (os.uname().sysname, os.uname().machine)


def test_the_folder_of_what_was_installed_hides_the_image(tmp_path: Path) -> None:
    own, mine = tmp_path / "own", tmp_path / "mine"
    package(own, "msgspec-0.1.dist-info")
    package(own, "of_test-2.0.dist-info")
    package(mine, "of_test-1.0.dist-info")
    package(mine, "Other.Thing-1!2.0+local.dist-info")
    found = environment(str(own), {"PYTHONPATH": f"{own}{os.pathsep}{mine}{os.pathsep}/nowhere"})
    assert found.installed == {"msgspec": "0.1", "of-test": "2.0"}
    assert found.image["other-thing"] == "1!2.0+local"
    assert "of-test" not in found.image
    assert "msgspec" not in found.image
    assert found.resolved["msgspec"] == "0.1"


def test_eggs_have_their_version_in_a_file(tmp_path: Path) -> None:
    package(tmp_path, "PyOld-3.1-py3.10.egg-info", PKG_INFO="")
    (tmp_path / "PyOld-3.1-py3.10.egg-info" / "PKG-INFO").write_text("Name: PyOld\nVersion: 3.1\n")
    (tmp_path / "Debian_thing.egg-info").write_text(
        "Metadata-Version: 1.1\nName: x\nVersion: 5.4\nSummary: y\n"
    )
    package(tmp_path, "empty.egg-info")
    found = environment("", {"PYTHONPATH": str(tmp_path)}).image
    assert (found["pyold"], found["debian-thing"]) == ("3.1", "5.4")
    assert "empty" not in found


@pytest.mark.parametrize(
    ("content", "address"),
    [
        (
            {"url": "https://ada:pw@example.com/a.whl?token=x#y", "archive_info": {}},
            "https://example.com/a.whl",
        ),
        (
            {"url": "https://tok@example.com/a", "vcs_info": {"vcs": "git", "commit_id": "0f"}},
            "git+https://example.com/a@0f",
        ),
        ({"url": 3}, "3"),
        ({"url": "https://example.com/\ud800"}, "https://example.com/?"),
        ({}, None),
        ([], None),
        ({"url": "x", "vcs_info": "y"}, None),
    ],
)
def test_what_comes_from_no_index_is_told_without_passwords(
    tmp_path: Path, content: object, address: str | None
) -> None:
    package(tmp_path, "mine-1.0.dist-info", direct_url__json=json.dumps(content))
    assert environment("", {"PYTHONPATH": str(tmp_path)}).urls.get("mine") == address


@pytest.mark.parametrize("text", ["{", "[" * 4000, "\0"])
def test_files_that_are_no_json_are_passed_over(tmp_path: Path, text: str) -> None:
    package(tmp_path, "mine-1.0.dist-info", direct_url__json=text)
    assert environment("", {"PYTHONPATH": str(tmp_path)}).image["mine"] == "1.0"


def test_names_that_no_package_has_do_not_spoil_the_record(tmp_path: Path) -> None:
    for name in (
        "~umpy-1.0.dist-info",
        "-.dist-info",
        ".dist-info",
        "x" * 230 + "-1.dist-info",
        "noversion.dist-info",
    ):
        package(tmp_path, name)
    package(tmp_path, "good-1.0.dist-info")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff-1.0.dist-info")
    found = environment("", {"PYTHONPATH": str(tmp_path)})
    assert found.image["good"] == "1.0"
    assert not {name for name in found.image if len(name) > 200}


def test_the_record_says_what_the_host_is_in_lines_that_are_sorted(tmp_path: Path) -> None:
    package(tmp_path, "mine-1.0.dist-info", direct_url__json='{"url": "https://example.com/mine.whl"}')
    text = inventory.record(Prepared("", str(tmp_path)), {}).decode()
    content = json.loads(text)
    host = os.uname()
    assert content.pop("image").keys()
    assert content.pop("urls")["mine"] == "https://example.com/mine.whl"
    assert content == {
        "python": platform.python_version(), "implementation": "cpython", "system": host.sysname,
        "release": host.release, "processor": host.machine, "installed": {"mine": "1.0"},
        "schema": 1,
    }  # fmt: skip
    names = [line[: line.index(":")] for line in text.splitlines() if line.startswith('  "')]
    assert names == sorted(names)
    assert len(names) == 9
    assert text.endswith("}\n")


def test_of_each_kind_the_first_packages_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MOST", 2)
    own, mine = tmp_path / "own", tmp_path / "mine"
    for folder, letter in ((own, "o"), (mine, "m")):
        for number in range(3):
            package(folder, f"{letter}{number}-1.dist-info", direct_url__json='{"url": "x"}')
    found = environment(str(own), {"PYTHONPATH": str(mine)})
    assert (list(found.installed), list(found.image)) == (["o0", "o1"], ["m0", "m1"])
    assert sorted(found.urls) == ["m0", "m1", "o0", "o1"]


@pytest.mark.parametrize(("before", "version"), [(4_096 - 14, "1.0"), (4_096 - 9, None)])
def test_a_version_is_looked_for_at_the_beginning_of_a_file(
    tmp_path: Path, before: int, version: str | None
) -> None:
    (tmp_path / "old.egg-info").write_text("x" * (before - 1) + "\nVersion: 1.0\n")
    assert environment("", {"PYTHONPATH": str(tmp_path)}).image.get("old") == version


def test_what_the_program_itself_imports_from_is_not_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "mine-1.0.dist-info")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert environment().image == {"mine": "1.0"}
    monkeypatch.setenv("PYTHONPATH", f"/nowhere{os.pathsep}{tmp_path}")
    assert environment().image == {}
    assert environment("", {"PYTHONPATH": str(tmp_path)}).image == {"mine": "1.0"}


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


@pytest.mark.daily
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
