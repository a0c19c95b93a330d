"""Logins to a host: which keys it accepts, who is logged in, and connections that come while it closes."""

from __future__ import annotations

import asyncio
import base64
import gc
import socket
import stat
import warnings
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncssh
import pytest

from tests.sim.hosts.site import Clock
from tpuctl.sim.hosts.ssh import AuthorizedKeys, Logins, SshServer, accepted_keys, parse_keys


def shown(view: Path) -> dict[str, str]:
    return {entry.parent.name: entry.read_text() for entry in (view / "proc").glob("*/cmdline")}


def test_each_login_is_a_process_of_sshd_until_it_ends(tmp_path: Path) -> None:
    logins = Logins(tmp_path)
    ada, bob = logins.add("ada"), logins.add("bob")
    assert shown(tmp_path) == {"1": "sshd: ada@notty", "2": "sshd: bob@notty"}
    logins.remove(ada)
    logins.remove(ada)
    logins.add("ada")
    assert shown(tmp_path) == {"2": "sshd: bob@notty", "3": "sshd: ada@notty"}
    for folder in (tmp_path / "proc", bob):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nobody_is_logged_in_after_a_restart(tmp_path: Path) -> None:
    Logins(tmp_path).add("ada")
    again = Logins(tmp_path)
    assert shown(tmp_path) == {}
    again.add("bob")
    assert shown(tmp_path) == {"1": "sshd: bob@notty"}


def line(user: str, key: bytes) -> str:
    return f"{user}:ssh-ed25519 {base64.b64encode(key).decode()} {user}@laptop"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", set()),
        (line("ada", b"key"), {("ada", b"key")}),
        (f"  {line('ada', b'key')}  \n\n{line('bob', b'other')}", {("ada", b"key"), ("bob", b"other")}),
        ("ada:ssh-rsa a2V5", {("ada", b"key")}),
        ("ssh-rsa a2V5 ada@laptop", set()),
        (":ssh-rsa a2V5", set()),
        ("ada:a2V5", set()),
        ("ada:ssh-rsa a2V", set()),
        ("ada:ssh-rsa !!!!", set()),
        ('ada:ssh-rsa a2V5 google-ssh {"expireOn": "2030"}', {("ada", b"key")}),
    ],
)
def test_lines_of_ssh_keys(text: str, keys: set[tuple[str, bytes]]) -> None:
    assert parse_keys(text) == keys


@pytest.mark.parametrize(
    ("node", "project", "lines"),
    [
        ({}, {}, ""),
        ({"ssh-keys": "n"}, {"ssh-keys": "p"}, "n\np"),
        ({}, {"ssh-keys": "p", "sshKeys": "q"}, "p\nq"),
        ({"sshKeys": "o"}, {"ssh-keys": "p"}, "o"),
        ({"ssh-keys": "n", "sshKeys": "o"}, {"ssh-keys": "p"}, "n\no"),
        ({"ssh-keys": "n", "block-project-ssh-keys": "TRUE"}, {"ssh-keys": "p"}, "n"),
        ({"ssh-keys": "n", "block-project-ssh-keys": "true"}, {"ssh-keys": "p"}, "n"),
        ({"ssh-keys": "n", "block-project-ssh-keys": "1"}, {"ssh-keys": "p"}, "n\np"),
        ({"ssh-keys": "n", "block-project-ssh-keys": "FALSE"}, {"ssh-keys": "p"}, "n\np"),
        ({"ssh-keys": "n", "enable-oslogin": ""}, {"enable-oslogin": "TRUE"}, "n"),
        ({}, {"ssh-keys": "p", "block-project-ssh-keys": "TRUE"}, "p"),
        *(({"ssh-keys": "n", "enable-oslogin": flag}, {}, "") for flag in ("TRUE", "true", " T ", "1")),
        *(({"ssh-keys": "n", "enable-oslogin": flag}, {}, "n") for flag in ("FALSE", "0", "yes", "")),
        ({"ssh-keys": "n"}, {"enable-oslogin": "true"}, ""),
        ({"ssh-keys": "n", "enable-oslogin": "false"}, {"enable-oslogin": "true"}, "n"),
    ],
)
def test_keys_of_the_node_and_of_its_project(
    node: dict[str, str], project: dict[str, str], lines: str
) -> None:
    assert accepted_keys(node, project) == lines


def test_a_change_counts_after_the_delay() -> None:
    clock = Clock()
    keys = AuthorizedKeys(line("ada", b"1"), 5.0, clock)

    def allowed() -> list[bytes]:
        return [key for key in (b"1", b"2", b"3") if keys.allows("ada", key)]

    assert (allowed(), keys.allows("bob", b"1")) == ([b"1"], False)
    keys.change(line("ada", b"2"))
    clock.now = 2.0
    keys.change(line("ada", b"3"))
    keys.change(line("ada", b"3"))
    history = []
    for now in (4.9, 5.0, 6.9, 7.0):
        clock.now = now
        history.append(allowed())
    assert history == [[b"1"], [b"2"], [b"2"], [b"3"]]
    keys.change(line("ada", b"3"))
    clock.now = 100.0
    assert allowed() == [b"3"]


def test_without_a_delay_a_change_counts_at_once() -> None:
    clock = Clock()
    keys = AuthorizedKeys("", 0.0, clock)
    assert not keys.allows("ada", b"1")
    keys.change(line("ada", b"1"))
    assert keys.allows("ada", b"1")


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("turns", range(8))
def test_a_connection_that_was_just_accepted_is_closed_with_the_server(
    tmp_path: Path, turns: int, refuses: bool
) -> None:
    """After so many turns of the event loop it waits, is accepted, or is made."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    host: Any = SimpleNamespace(view=tmp_path)
    gc.collect()  # what earlier tests have left is not looked at here
    with (
        warnings.catch_warnings(record=True) as seen,
        closing(asyncio.new_event_loop()) as loop,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):
        warnings.simplefilter("always")

        async def connect_and_close() -> socket.socket:
            server = SshServer(host)
            await server.open(listener, key)
            client = socket.create_connection(listener.getsockname())
            for _ in range(turns):
                await asyncio.sleep(0)
            if refuses:
                await server.refuse()
            await server.close()
            return client

        loop.run_until_complete(connect_and_close()).close()
        loop.close()
        gc.collect()
    assert [str(warning.message) for warning in seen if issubclass(warning.category, ResourceWarning)] == []
