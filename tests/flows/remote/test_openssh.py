"""OpenSSH: the command lines it gets, the host keys it trusts, and the bytes between it and a host."""

from __future__ import annotations

import base64
import os
import socket
import stat
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.flows.nodes.memory_provider import ZONE, node
from tpuctl.errors import ConfigError, HostError
from tpuctl.flows.remote import copy, openssh
from tpuctl.flows.remote.copy import relay
from tpuctl.flows.remote.openssh import BLOB_START, Login, key_alias, known_hosts_file, write_known_hosts
from tpuctl.flows.remote.targets import Hosts

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


KEYS = [base64.b64encode(BLOB_START + bytes([number]) * 32).decode() for number in range(3)]
NODE = node("n2", addresses=("10.0.0.1", "10.0.0.2"))


def names_in(path: Path) -> list[list[str]]:
    """Return the names of each key."""
    return [line.split(" ")[0].split(",") for line in path.read_text().splitlines()]


def test_every_published_key_is_in_it_under_its_workers_names(tmp_path: Path) -> None:
    path = write_known_hosts(tmp_path / "keys", Hosts(NODE, (0,), dict(enumerate(KEYS[:2]))))
    assert [line.split(" ", 1)[1] for line in path.read_text().splitlines()] == [
        f"ssh-ed25519 {key}" for key in KEYS[:2]
    ]
    bases = [["n2", "n2.w0", f"n2.{ZONE}", f"n2.{ZONE}.w0"], ["n2.w1", f"n2.{ZONE}.w1"]]
    assert names_in(path) == [
        [f"tpuctl.uid-0.{worker}", *(f"{name}{end}" for end in (".tpuctl", ".sim.tpuctl") for name in names)]
        for worker, names in enumerate(bases)
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_alias(NODE, 1) == "tpuctl.uid-0.1"


def test_no_name_of_a_worker_is_that_of_another_one_or_of_a_node_with_such_a_name(tmp_path: Path) -> None:
    """A node may be called n2-w1; none has a dot in its name."""
    keys = dict(enumerate(KEYS))
    nodes = [node(name, addresses=("10.0.0.1",) * 3) for name in ("n2", "n2-w1")]
    written = [names_in(write_known_hosts(tmp_path, Hosts(item, (0,), keys))) for item in nodes]
    names = [name for lines in written for line in lines for name in line if "uid-0" not in name]
    assert len(set(names)) == len(names)


def test_nodes_of_one_name_in_two_zones_have_a_file_each(tmp_path: Path) -> None:
    other = replace(NODE, id=replace(NODE.id, zone="z-2", uid="uid-2"))
    paths = [write_known_hosts(tmp_path, Hosts(item, (0,), {0: key}), item.zone)
             for item, key in zip((NODE, other), KEYS, strict=False)]  # fmt: skip
    for path, key in zip(paths, KEYS, strict=False):
        assert path.read_text().endswith(f"{key}\n")
    assert [path.name for path in paths] == [f"p.{ZONE}.n2", "p.z-2.n2"]
    assert known_hosts_file(tmp_path, NODE.id) == known_hosts_file(tmp_path, other.id) not in paths


def test_a_node_that_is_made_anew_has_the_same_file_with_its_own_keys(tmp_path: Path) -> None:
    former = write_known_hosts(tmp_path, Hosts(NODE, (0,), {0: KEYS[0]}))
    successor = replace(NODE, id=replace(NODE.id, uid="uid-9"))
    path = write_known_hosts(tmp_path, Hosts(successor, (0,), {0: KEYS[2]}))
    assert path == former
    assert path.read_text().startswith("tpuctl.uid-9.0,n2.tpuctl,")
    assert path.read_text().endswith(f" ssh-ed25519 {KEYS[2]}\n")
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "key",
    ["", "AAAA", f"{KEYS[0]}\n* ssh-ed25519 {KEYS[1]}", f"{KEYS[0]} ", f"{KEYS[0]}\r", "\u0661" + KEYS[0],
     "@cert-authority *", base64.b64encode(b"\0\0\0\x07ssh-rsa" + bytes(40)).decode()],
)  # fmt: skip
def test_what_is_no_key_is_never_written(tmp_path: Path, key: str) -> None:
    with pytest.raises(HostError, match="worker 1 of 'n2': its published host key is not valid"):
        write_known_hosts(tmp_path, Hosts(NODE, (1,), {0: KEYS[0], 1: key}))
    path = write_known_hosts(tmp_path, Hosts(NODE, (0,), {0: KEYS[0], 1: key}))
    assert len(path.read_text().splitlines()) == 1


def test_names_are_no_patterns_and_no_paths(tmp_path: Path) -> None:
    hostile = replace(NODE, id=replace(NODE.id, name="../*,!x", uid="* ssh-rsa"))
    path = write_known_hosts(tmp_path, Hosts(hostile, (0,), {0: KEYS[0]}))
    assert path.parent == tmp_path
    assert path.read_text().startswith("tpuctl.--ssh-rsa.0,------x.tpuctl,------x.w0.tpuctl,")


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_known_hosts(tmp_path / "keys", Hosts(NODE, (0,), {0: KEYS[0]}))


class Ends:
    """What `relay` connects: our ends of its stream, its source and its sink."""

    def __init__(self) -> None:
        self.host, self.stream = socket.socketpair()
        self.source, self.to_source = os.pipe()
        self.from_sink, self.sink = os.pipe()
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        relay(self.stream, self.source, self.sink)
        os.close(self.sink)

    def join(self) -> None:
        """Wait for the end of the relay."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.host.close()

    def read_sink(self) -> bytes:
        """Return all that arrives at the sink."""
        with os.fdopen(self.from_sink, "rb") as sink:
            return sink.read()


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_a_megabyte_goes_each_way_and_back_unchanged(ends: Ends) -> None:
    content = os.urandom(1 << 20)

    def echo() -> None:
        while data := ends.host.recv(1 << 14):
            ends.host.sendall(data)
        ends.host.close()

    def feed() -> None:
        with os.fdopen(ends.to_source, "wb") as source:
            source.write(content)

    threads = [threading.Thread(target=work, daemon=True) for work in (echo, feed)]
    for thread in threads:
        thread.start()
    assert ends.read_sink() == content
    for thread in threads:
        thread.join()
    ends.join()


def test_the_relay_ends_with_the_host_although_the_source_is_open(ends: Ends) -> None:
    ends.host.sendall(b"bye")
    ends.host.close()
    assert ends.read_sink() == b"bye"
    ends.join()
    os.close(ends.to_source)


def test_the_relay_ends_with_the_reader_of_the_sink(ends: Ends) -> None:
    os.close(ends.from_sink)
    ends.host.sendall(b"x")
    assert ends.host.recv(1) == b""
    ends.join()
    os.close(ends.to_source)


def test_a_host_that_says_nothing_after_the_end_of_the_source_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy, "PATIENCE", 0.05)
    ends = Ends()
    os.close(ends.to_source)
    assert ends.host.recv(1) == b""
    ends.join()
    assert ends.read_sink() == b""


def test_a_source_that_pauses_for_longer_than_the_patience_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "PATIENCE", 0.01)
    ends = Ends()
    for byte in (b"a", b"b"):
        os.write(ends.to_source, byte)
        assert ends.host.recv(1) == byte
        threading.Event().wait(0.05)  # several times the patience
    os.close(ends.to_source)
    ends.host.close()
    ends.join()
