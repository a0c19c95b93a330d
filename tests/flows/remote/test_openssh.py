"""The command lines that OpenSSH gets: which key, which host, and whose configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tpuctl.errors import ConfigError
from tpuctl.flows.remote import openssh
from tpuctl.flows.remote.openssh import Login

LOGIN = Login("ada", Path("/k/key"), Path("/k/hosts"), "tpu-77-w0", ("10.0.0.1", 2222), "none")
OPTIONS = {
    "User": "ada", "IdentityFile": '"/k/key"', "IdentitiesOnly": "yes", "UserKnownHostsFile": '"/k/hosts"',
    "GlobalKnownHostsFile": "/dev/null", "StrictHostKeyChecking": "yes", "HostKeyAlgorithms": "ssh-ed25519",
    "CheckHostIP": "no", "UpdateHostKeys": "no", "VerifyHostKeyDNS": "no",
}  # fmt: skip


def settings(line: list[str]) -> dict[str, str]:
    return dict(word.removeprefix("-o").split("=", 1) for word in line if word.startswith("-o"))


def test_every_login_trusts_the_published_key_of_its_host_and_no_other() -> None:
    assert openssh.options("ada", Path("/k/key"), Path("/k/hosts")) == OPTIONS


@pytest.mark.parametrize(
    ("path", "word"),
    [("/a b/k", '"/a b/k"'), ("/100%/k", '"/100%%/k"'), ('/a"b', '"/a\\"b"'), ("/a\\b", '"/a\\\\b"')],
)
def test_a_path_of_any_characters_is_one_word_of_a_configuration(path: str, word: str) -> None:
    made = openssh.options("ada", Path(path), Path(path))
    assert (made["IdentityFile"], made["UserKnownHostsFile"]) == (word, word)


class TestCommand:
    def test_it_names_port_user_and_host_and_ends_with_what_was_asked(self) -> None:
        line = openssh.command("/bin/ssh", LOGIN, ["-L", "1:localhost:1", "ls"])
        assert line[0] == "/bin/ssh"
        assert line[-6:] == ["-p", "2222", "ada@10.0.0.1", "-L", "1:localhost:1", "ls"]
        expected = {name: value for name, value in OPTIONS.items() if name != "User"}
        assert settings(line) == expected | {
            "HostKeyAlias": "tpu-77-w0", "ServerAliveInterval": "30", "ServerAliveCountMax": "4",
            "ConnectTimeout": "120", "ProxyCommand": "none",
        }  # fmt: skip

    def test_a_host_that_only_the_proxy_reaches_is_called_by_its_alias(self) -> None:
        login = Login("ada", Path("k"), Path("h"), "tpu-77-w0", None, "tpuctl tunnel")
        line = openssh.command("ssh", login, [])
        assert line[-3:] == ["-p", "22", "ada@tpu-77-w0"]
        assert settings(line)["ProxyCommand"] == "tpuctl tunnel"

    def test_without_a_proxy_the_users_own_configuration_decides(self) -> None:
        login = Login("ada", Path("k"), Path("h"), "a", ("10.0.0.1", 22), "")
        assert "ProxyCommand" not in settings(openssh.command("ssh", login, []))

    @pytest.mark.parametrize("word", ["-oServerAliveInterval=5", "-o serveraliveinterval=5"])
    def test_a_keep_alive_of_the_user_is_the_users(self, word: str) -> None:
        line = openssh.command("ssh", LOGIN, word.split())
        assert line.count("-oServerAliveInterval=30") == 0
        assert "-oServerAliveCountMax=4" in line


class TestProxyCommand:
    @pytest.fixture(autouse=True)
    def _own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in openssh.FOREIGN:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(sys, "executable", "/py/python")
        monkeypatch.chdir(tmp_path)

    def test_it_runs_tpuctl_with_these_variables_alone(self) -> None:
        line = openssh.proxy_command({"TPUCTL_PROJECT": "p q"}, ["tunnel", "n1", "--worker", "0"])
        assert line == (
            "env 'TPUCTL_PROJECT=p q' TPUCTL_CONFIG=/dev/null /py/python -P -m tpuctl tunnel n1 --worker 0"
        )

    def test_it_uses_the_same_credentials_in_any_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
        monkeypatch.setenv("CLOUDSDK_CONFIG", "")
        line = openssh.proxy_command({}, ["tunnel"])
        assert line == (
            f"env GOOGLE_APPLICATION_CREDENTIALS={os.getcwd()}/key.json TPUCTL_CONFIG=/dev/null "
            "/py/python -P -m tpuctl tunnel"
        )

    def test_a_percent_sign_is_none_of_openssh(self) -> None:
        assert "A=100%%h" in openssh.proxy_command({"A": "100%h"}, [])


def test_a_program_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, call in (("ssh", openssh.find_program), ("scp", lambda: openssh.find_program("scp"))):
        with pytest.raises(ConfigError, match=f"^There is no '{name}' on this machine's PATH"):
            call()
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert call() == str(tmp_path / name)
