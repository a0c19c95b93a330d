"""Our entries in the user's ~/.ssh/config: added once, taken away without a trace, all else untouched.

Entries for OpenSSH: the names of workers in them, and whose nodes get one.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tpuctl.errors import ConfigError, ConflictError, DeadlineError, NotFoundError, StateError
from tpuctl.flows.remote.openssh import Entry, SshConfig, entry, find_nodes
from tpuctl.nodes import NodeState, QueueState

OWN = b"# my own \xff\r\nHost n1 *\n  User me\nHost last"
PLACE = "project p"


def entry_of(name: str = "n1", place: str = PLACE, suffix: str = "") -> Entry:
    return entry(node(name), place, suffix, {"User": "ada"})


@pytest.fixture
def config(tmp_path: Path) -> SshConfig:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_bytes(OWN)
    return SshConfig(tmp_path)


def user_of(config: SshConfig, host: str) -> str:
    """The user with whom OpenSSH logs in."""
    if not shutil.which("ssh"):
        pytest.skip("there is no ssh on PATH")
    command = ["ssh", "-F", str(config.path), "-G", host]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line.split()[1] for line in lines if line.startswith("user "))


def test_an_entry_comes_before_those_of_the_user(config: SshConfig) -> None:
    config.path.chmod(0o600)
    config.install([entry_of()])
    assert [user_of(config, host) for host in ("n1", "n1.w0", "n2")] == ["ada", "ada", "me"]


def test_the_content_of_the_user_stays_byte_for_byte(config: SshConfig) -> None:
    config.install([entry_of()])
    assert config.path.read_bytes().endswith(OWN)
    assert config.remove(PLACE) == ["n1"]
    assert config.path.read_bytes() == OWN
    assert not config.folder.exists()


def test_installing_again_writes_nothing(config: SshConfig) -> None:
    config.install([entry_of()])
    before = {path: path.stat().st_mtime_ns for path in (config.path, *config.folder.iterdir())}
    config.install([entry_of()])
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [path.name for path in config.folder.iterdir()] == ["n1"]


def test_files_are_for_the_user_alone_and_keep_their_mode(config: SshConfig, tmp_path: Path) -> None:
    config.path.chmod(0o640)
    config.install([entry_of()])
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (config.path, config.folder, config.folder / "n1")]
    assert modes == [0o640, 0o700, 0o600]
    fresh = SshConfig(tmp_path / "other")
    fresh.install([entry_of()])
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (fresh.path.parent, fresh.path)]
    assert modes == [0o700, 0o600]


def test_a_link_to_the_file_stays_a_link(config: SshConfig, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    config.path.rename(dotfiles)
    config.path.symlink_to(dotfiles)
    config.install([entry_of()])
    assert config.path.is_symlink()
    assert dotfiles.read_bytes().endswith(OWN)
    config.remove(PLACE)
    assert dotfiles.read_bytes() == OWN


def test_an_include_that_holds_for_some_hosts_only_does_not_count(config: SshConfig) -> None:
    config.install([entry_of()])
    head = config.path.read_bytes().removesuffix(OWN)
    config.path.write_bytes(b"Match host other\n" + head)
    config.install([entry_of()])
    assert config.path.read_bytes() == head + b"Match host other\n" + head
    config.remove(PLACE)
    assert config.path.read_bytes() == b"Match host other\n"


def test_the_last_entry_takes_the_include_with_it(config: SshConfig) -> None:
    config.install([entry_of("n1"), entry_of("n2")])
    assert config.remove(PLACE, ["n1", "n9"]) == ["n1"]
    assert config.path.read_bytes() != OWN
    assert config.remove(PLACE) == ["n2"]
    assert config.path.read_bytes() == OWN
    assert config.remove(PLACE) == []


def test_entries_of_two_zones_go_by_the_name_of_their_nodes(config: SshConfig) -> None:
    users = {"z-1": "ada", "z-2": "bob"}
    zones = [entry(node("n1"), PLACE, "", {"User": user}, zone) for zone, user in users.items()]
    config.install([*zones, entry_of("n2")])
    hosts = ("n1.z-1", "n1.z-2.w0", "n1", "n1.z-3")
    assert [user_of(config, host) for host in hosts] == ["ada", "bob", "me", "me"]
    assert config.remove(PLACE, ["n1.z-2"]) == ["n1.z-2"]
    assert config.remove(PLACE, ["n1"]) == ["n1.z-1"]
    assert config.remove(PLACE) == ["n2"]


def test_a_node_with_the_name_of_a_former_worker_has_an_entry_of_its_own(config: SshConfig) -> None:
    """`n1-w1` was worker 1 of `n1`, too."""
    config.install([entry(node(name), PLACE, "", {"User": name}) for name in ("n1", "n1-w1")])
    assert [user_of(config, host) for host in ("n1.w0", "n1-w1")] == ["n1", "n1-w1"]


def test_entries_of_two_places_do_not_mix(config: SshConfig) -> None:
    simulator = entry_of(place="the simulator in /s", suffix=".sim")
    config.install([entry_of(), simulator])
    with pytest.raises(ConflictError, match="'n1' is node n1 of project p in"):
        config.install([entry_of(place="project q")])
    assert config.remove("project q") == []
    assert config.remove("the simulator in /s") == ["n1"]
    assert [path.name for path in config.folder.iterdir()] == ["n1"]


def test_a_home_with_patterns_and_spaces_in_its_name_works(tmp_path: Path) -> None:
    config = SshConfig(tmp_path / "a [b] *c")
    config.install([entry_of()])
    assert user_of(config, "n1") == "ada"


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / ".ssh").write_text("no folder")
    with pytest.raises(ConfigError, match="cannot be written") as error:
        SshConfig(tmp_path).install([entry_of()])
    assert "without --install" in error.value.hint


def test_a_write_that_fails_leaves_the_file_of_before(config: SshConfig) -> None:
    if os.geteuid() == 0 and not Path("/dev/full").exists():
        pytest.skip("nothing fails for root here")
    blocker = config.path.with_name(f".config.{os.getpid()}-{threading.get_ident()}.part")
    blocker.mkdir()
    with pytest.raises(ConfigError):
        config.install([entry_of()])
    assert config.path.read_bytes() == OWN


def test_an_entry_names_every_worker_and_the_node_is_worker_0() -> None:
    one = entry(node("n2", addresses=("10.0.0.1", "10.0.0.2")), "project p", ".sim", {"User": "ada"})
    assert one.text == (
        "# tpuctl: node n2 of project p\n"
        "Host n2.sim n2.w0.sim n2.w1.sim\n"
        "    HostName %h.tpuctl\n"
        "    Port 22\n"
        "    User ada\n"
    )
    assert one.file_name == "n2.sim"


def test_the_zone_is_in_the_names_where_another_has_such_a_node() -> None:
    one = entry(node(), "project p", "", {}, ZONE)
    assert (one.title, one.hosts) == (
        f"# tpuctl: node n1.{ZONE} of project p",
        (f"n1.{ZONE}", f"n1.{ZONE}.w0"),
    )


@pytest.mark.parametrize(("accelerator", "hosts"), [("v3-8", 1), ("v3-32", 4)])
def test_a_node_without_addresses_yet_has_the_workers_of_its_type(accelerator: str, hosts: int) -> None:
    one = entry(node(accelerator=accelerator, addresses=()), "project p", "", {})
    assert one.hosts == ("n1", *(f"n1.w{worker}" for worker in range(hosts)))


class TestNodes:
    def test_of_all_are_the_owners_that_are_not_over(self) -> None:
        provider = MemoryProvider(
            node(),
            node("n2", NodeState.CREATING),
            node("over", NodeState.PREEMPTED),
            node("theirs", labels={}),
        )
        nodes, silent = find_nodes(provider, [], "ada", None, everything=True)
        assert ([item.name for item in nodes], silent) == (["n1", "n2"], ())

    def test_without_a_name_are_those_of_the_only_one(self) -> None:
        provider = MemoryProvider(node("over", NodeState.PREEMPTED), node(), node("theirs", labels={}))
        assert [item.name for item in find_nodes(provider, [], "ada", None)[0]] == ["n1"]
        provider.nodes["n2"] = node("n2")
        with pytest.raises(StateError, match=r"^You have 2 TPUs: n1, n2\.$"):
            find_nodes(provider, [], "ada", None)

    def test_are_listed_although_a_zone_does_not_answer(self) -> None:
        provider = MemoryProvider(node())
        provider.unreachable = ("us-east1-d",)
        nodes, silent = find_nodes(provider, [], "ada", None, everything=True)
        assert ([item.name for item in nodes], silent) == (["n1"], ("us-east1-d",))

    def test_by_name_are_of_anybody_and_in_any_state(self) -> None:
        provider = MemoryProvider(node("over", NodeState.PREEMPTED), node("theirs", labels={}), node())
        nodes, silent = find_nodes(provider, ["theirs", "over"], "ada", None)
        assert ([item.name for item in nodes], silent) == (["theirs", "over"], ())

    def test_of_a_queued_resource_that_has_them_are_found_by_its_name(self) -> None:
        made = node("q1-0", queued_resource="q1")
        provider = MemoryProvider(made)
        provider.queue["q1"] = queued_resource(QueueState.ACTIVE, nodes=(made.id,))
        assert find_nodes(provider, ["q1"], "ada", None)[0] == [made]

    def test_of_a_queued_resource_that_waits_are_an_error_by_name(self) -> None:
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource()
        with pytest.raises(StateError) as caught:
            find_nodes(provider, ["q1"], "ada", None)
        assert caught.value.message == "'q1' has no hosts: it is its WAITING."
        assert caught.value.hint == "Wait for it: tpuctl wait q1"

    def test_that_do_not_exist_are_an_error(self) -> None:
        provider = MemoryProvider(node(labels={}))
        with pytest.raises(NotFoundError, match=r"^You have no TPU\.$"):
            find_nodes(provider, [], "ada", None)
        provider.unreachable = ("us-east1-d",)
        with pytest.raises(DeadlineError, match=r"^No answer from us-east1-d: your TPU may be there\.$"):
            find_nodes(provider, [], "ada", None)
