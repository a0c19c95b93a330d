"""The file of host keys that OpenSSH trusts: what a host has published, and nothing that it slips in."""

from __future__ import annotations

import base64
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.flows.nodes.memory_provider import node
from tpuctl.errors import ConfigError, HostError
from tpuctl.flows.remote.known_hosts import BLOB_START, key_alias, write_known_hosts
from tpuctl.flows.remote.targets import Hosts

KEYS = [base64.b64encode(BLOB_START + bytes([number]) * 32).decode() for number in range(3)]
NODE = node("n2", addresses=("10.0.0.1", "10.0.0.2"))


def test_every_published_key_is_in_it_under_two_names(tmp_path: Path) -> None:
    path = write_known_hosts(tmp_path / "keys", Hosts(NODE, (0,), dict(enumerate(KEYS[:2]))))
    assert path.read_text().splitlines() == [
        f"tpuctl.uid-0.0,n2-w0.*tpuctl,n2.*tpuctl ssh-ed25519 {KEYS[0]}",
        f"tpuctl.uid-0.1,n2-w1.*tpuctl ssh-ed25519 {KEYS[1]}",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_alias(NODE, 1) == "tpuctl.uid-0.1"


def test_a_node_that_is_made_anew_has_the_same_file_with_its_own_keys(tmp_path: Path) -> None:
    former = write_known_hosts(tmp_path, Hosts(NODE, (0,), {0: KEYS[0]}))
    successor = replace(NODE, id=replace(NODE.id, uid="uid-9"))
    path = write_known_hosts(tmp_path, Hosts(successor, (0,), {0: KEYS[2]}))
    assert (path, path.read_text()) == (
        former,
        f"tpuctl.uid-9.0,n2-w0.*tpuctl,n2.*tpuctl ssh-ed25519 {KEYS[2]}\n",
    )
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
    assert path.read_text().startswith("tpuctl.--ssh-rsa.0,------x-w0.*tpuctl,------x.*tpuctl ssh-ed25519 ")


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_known_hosts(tmp_path / "keys", Hosts(NODE, (0,), {0: KEYS[0]}))
