"""Which keys a host accepts, and from when: as Google's guest agent reads the metadata."""

from __future__ import annotations

import base64

import pytest

from tests.sim.hosts.site import Clock
from tpuctl.sim.hosts.ssh import AuthorizedKeys, accepted_keys, parse_keys


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
