"""The file of host keys that OpenSSH trusts: what a host has published, and nothing that it slips in."""

from __future__ import annotations

import base64
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.flows.nodes.memory_provider import ZONE, node
from tpuctl.errors import ConfigError, HostError
from tpuctl.flows.remote.openssh import BLOB_START, key_alias, known_hosts_file, write_known_hosts
from tpuctl.flows.remote.targets import Hosts

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
