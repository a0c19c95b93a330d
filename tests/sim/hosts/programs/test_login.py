"""What a login on a host begins with, as sshd on Ubuntu makes it: shell, limits, variables, search path."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tpuctl.sim.hosts.programs import login
from tpuctl.sim.hosts.programs.login import (
    Peer,
    command_line,
    login_environment,
    make_python,
    search_path,
    write_profile,
)
from tpuctl.sim.hosts.programs.programs import Command

BASH = Path("/bin/bash")
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PEER = Peer(("10.0.0.1", 50000), ("127.77.0.1", 22))


def output(command: Command) -> str:
    """Return what a command prints."""
    completed = subprocess.run(
        list(command.argv), executable=command.program, env=dict(command.environment), cwd=command.folder,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return completed.stdout.strip()


@pytest.mark.skipif(not BASH.exists(), reason="this system has no /bin/bash")
def test_a_command_is_run_by_the_shell(tmp_path: Path) -> None:
    variables = {"A": "b"}
    assert command_line("true", variables, tmp_path) == Command(
        "/bin/bash",
        [
            "bash",
            "-c",
            'ulimit -S -n 1024; ulimit -S -c 0; exec -a "$0" "$@"',
            "bash",
            "/bin/bash",
            "-c",
            "true",
        ],
        variables,
        tmp_path,
    )
    limits = command_line("true", variables, tmp_path, full=True).argv[2]
    assert limits == 'ulimit -S -n 1024; ulimit -S -c 0; ulimit -S -f 0; exec -a "$0" "$@"'
    assert command_line(None, variables, tmp_path).argv[3:] == ["-bash", "/bin/bash", "-l"]


def test_a_command_has_the_limits_and_the_folder_of_a_login(tmp_path: Path) -> None:
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    asked = command_line('echo "$(ulimit -S -n) $(ulimit -S -c) $(pwd)"', variables, tmp_path)
    assert output(asked) == f"1024 0 {os.path.realpath(tmp_path)}"
    full = command_line("ulimit -S -f", variables, tmp_path, full=True)
    assert output(full) == "0"


def test_the_variables_of_a_login() -> None:
    offered = {"LANG": "de_DE.UTF-8", "LC_TIME": "C", "LANGUAGE": "de", "PATH": "/evil", "XLC_A": "b"}
    assert login_environment("ada", PEER, offered) == {
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": login.SHELL,
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "SSH_CLIENT": "10.0.0.1 50000 22",
        "SSH_CONNECTION": "10.0.0.1 50000 127.77.0.1 22",
    }
    assert login_environment("ada", PEER, {})["LANG"] == "C.UTF-8"


def test_a_host_has_a_python_with_other_packages_than_this_machine(tmp_path: Path) -> None:
    packages, python = tmp_path / "packages", tmp_path / "host" / "python"
    (packages / "bin").mkdir(parents=True)
    (packages / "bin" / "hello").write_text("#!/usr/bin/env python3\nimport only_here\n")
    (packages / "bin" / "hello").chmod(0o700)
    (packages / "only_here.py").write_text("import sys; print(sys.prefix)")
    for _ in range(2):  # at each boot
        make_python(python, packages)
    shown = Command("/bin/sh", ["sh", "-c", "hello"], {"PATH": search_path(python)}, tmp_path)
    assert output(shown) == str(python)
    hidden = "import importlib.util as u; print(u.find_spec('asyncssh'))"
    assert output(Command(str(python / "bin/python3"), ["python3", "-c", hidden], {}, tmp_path)) == "None"


def test_a_profile_keeps_the_search_path_until_it_is_changed(tmp_path: Path) -> None:
    profile = tmp_path / ".profile"
    for path in ("/a b:/bin", "/c:/bin"):
        write_profile(tmp_path, path)
        shown = subprocess.run(
            ["/bin/sh", "-c", f". {profile}; echo $PATH"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert shown.stdout.strip() == path
    profile.write_text("# mine\n")
    write_profile(tmp_path, "/d")
    assert profile.read_text() == "# mine\n"
