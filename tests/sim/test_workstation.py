"""The programs of a simulated shell hand over to the user's own, whatever those are and wherever they lie."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tpuctl.sim.client_environment import KEY, Programs

TELLING = '#!/bin/sh\necho "$0 home=$HOME"\nfor word; do echo "<$word>"; done\nexit 7\n'


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Programs in a folder with a space and a quote."""
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    written = Programs(folder)
    written.write(folder / "hosts.ssh_config")
    return written


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with the user's own programs."""
    folder = tmp_path / "own programs"
    folder.mkdir()
    for name in ("ssh", "scp", "gcloud"):
        (folder / name).write_text(TELLING)
        (folder / name).chmod(0o755)
    return folder


def run(programs: Programs, name: str, path: str, *words: str) -> tuple[int, list[str]]:
    environment = {"PATH": path, "HOME": "/home/ada"}
    command = ["/bin/sh", "-c", 'exec "$@"', "sh", str(programs.folder / name), *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return result.returncode, (result.stdout or result.stderr).splitlines()


def test_openssh_gets_a_configuration_before_its_arguments(programs: Programs, own: Path) -> None:
    path = f"{programs.folder}:/nowhere:{own}"
    code, (program, *words) = run(programs, "ssh", path, "-p", "2", "a b", "*", "")
    assert (code, program) == (7, f"{own}/ssh home=/home/ada")
    assert words == ["<-F>", f"<{programs.folder.parent}/ssh_config>", "<-p>", "<2>", "<a b>", "<*>", "<>"]


def test_gcloud_gets_a_home_and_nothing_else(programs: Programs, own: Path) -> None:
    _, lines = run(programs, "gcloud", f"{own}", "compute", "it's")
    assert lines == [f"{own}/gcloud home={programs.folder.parent}/home", "<compute>", "<it's>"]


@pytest.mark.parametrize("spelling", ["{0}", "{0}/", "{0}/../bin", "{1}"])
def test_a_program_never_runs_itself(programs: Programs, own: Path, tmp_path: Path, spelling: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(programs.folder)
    path = f"{spelling.format(programs.folder, link)}:{own}"
    assert run(programs, "ssh", path, "x")[1][0].startswith(f"{own}/ssh ")


@pytest.mark.parametrize("path", ["", "{0}", "{0}:/nowhere:"])
def test_without_a_program_of_the_user_there_is_none(programs: Programs, path: str) -> None:
    assert run(programs, "sftp", path.format(programs.folder)) == (127, ["sftp: not found"])


def test_a_folder_or_a_text_of_that_name_is_none(programs: Programs, own: Path, tmp_path: Path) -> None:
    (tmp_path / "folder" / "ssh").mkdir(parents=True)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "ssh").write_text("notes")
    path = f"{tmp_path}/folder:{tmp_path}/text:{own}"
    assert run(programs, "ssh", path)[1][0].startswith(f"{own}/ssh ")


@pytest.mark.parametrize("path", ["{0}:{1}:{2}", "{0}:{1}:{0}:{2}", "{1}:{0}:{1}:{2}"])
def test_in_a_shell_of_two_simulators_the_program_that_is_called_counts(
    programs: Programs, own: Path, tmp_path: Path, path: str
) -> None:
    outer = Programs(tmp_path)
    outer.write(tmp_path / "hosts.ssh_config")
    _, lines = run(programs, "ssh", path.format(programs.folder, outer.folder, own), "x")
    assert lines[-3:] == ["<-F>", f"<{programs.folder.parent}/ssh_config>", "<x>"], "the last -F counts"


def test_gclouds_key_is_made_once_and_for_its_user_alone(programs: Programs) -> None:
    folder = programs.folder.parent
    key = folder / "home" / ".ssh" / KEY
    before = key.read_bytes()
    programs.write(folder / "hosts.ssh_config")
    assert key.read_bytes() == before
    assert (key.parent / f"{KEY}.pub").read_text().startswith("ssh-ed25519 ")
    for path in (key, key.parent, programs.folder, programs.folder / "ssh"):
        assert os.stat(path).st_mode & 0o077 == 0
