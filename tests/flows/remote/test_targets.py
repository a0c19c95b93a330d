"""Which hosts a command reaches, why it reaches none, and how our key gets there.

Which workers a text means, on a node that has them or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, MemorySsh, node, queued_resource
from tests.flows.passing_time import PassingTime
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.ssh import Ssh
from tpuctl.cloud.ssh.dialing import make_key
from tpuctl.config import load
from tpuctl.errors import (
    DeadlineError,
    HostError,
    NotFoundError,
    PreemptedError,
    StateError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.hosts import way_in
from tpuctl.flows.hosts.way_in import KEY_ARRIVAL, grant_access, patient_ssh
from tpuctl.flows.remote.targets import (
    ALL_WORKERS,
    HostName,
    Hosts,
    admission_requests,
    admit,
    chosen_workers,
    find_hosts,
    only_worker,
    parse_host_name,
    parse_workers,
    worker_of_entry,
)
from tpuctl.nodes import Node, NodeId, NodeState, QueueState, SshKey

Tpuctl = Callable[..., CommandResult]
KEY = SshKey("ada", "ssh-ed25519 AAAA")
PAIR = node("n2", addresses=("10.0.0.1", "10.0.0.2"))


def find(provider: MemoryProvider, name: str = "") -> Hosts:
    return find_hosts(provider, name, ALL_WORKERS, "ada", None)


def queue(provider: MemoryProvider, state: QueueState, **fields: object) -> MemoryProvider:
    provider.queue["q1"] = queued_resource(state, **fields)
    return provider


def test_without_a_name_it_is_the_users_only_node() -> None:
    provider = MemoryProvider(node(), node("theirs", labels={}), node("over", NodeState.PREEMPTED))
    hosts = find(provider)
    assert (hosts.node.name, hosts.workers, hosts.host_key(0)) == ("n1", (0,), "host key 0")


def test_a_name_means_a_node_whoever_made_it() -> None:
    assert find(MemoryProvider(node(), node("theirs", labels={})), "theirs").node.name == "theirs"


def test_only_the_chosen_workers_are_reached() -> None:
    assert find_hosts(MemoryProvider(PAIR), "n2", only_worker(1), "ada", None).workers == (1,)
    with pytest.raises(NotFoundError, match="'n2' has no worker 2: its workers are 0 to 1"):
        find_hosts(MemoryProvider(PAIR), "n2", only_worker(2), "ada", None)


def test_of_several_nodes_one_has_to_be_named() -> None:
    with pytest.raises(StateError, match=r"^You have 2 TPUs: n1, n2\.$") as several:
        find(MemoryProvider(PAIR, node()))
    assert (several.value.hint, several.value.facts) == ("Name one of them.", {"nodes": ["n1", "n2"]})


@pytest.mark.parametrize(
    ("own", "chosen"),
    [
        ((node("own"),), "own"),
        ((), "kept"),
        ((node("own", NodeState.PREEMPTED),), "kept"),
    ],
)
def test_the_node_that_terraform_keeps_is_chosen_where_the_user_has_none(
    own: tuple[Node], chosen: str
) -> None:
    kept = node("kept", labels={"managed-by": "terraform"})
    assert find(MemoryProvider(kept, *own)).node.name == chosen


def test_without_any_node_the_hint_makes_one() -> None:
    with pytest.raises(NotFoundError, match=r"^You have no TPU\.$") as missing:
        find(MemoryProvider(node(labels={})))
    assert "tpuctl up v3-8" in missing.value.hint


def test_one_name_in_two_zones_is_chosen_by_zone() -> None:
    provider = MemoryProvider(node())
    provider.nodes["second"] = node(id=NodeId("memory", "p", "us-east1-d", "n1", "uid-2"))
    for name in ("", "n1"):
        with pytest.raises(StateError, match="There are 2 TPUs called 'n1'") as several:
            find(provider, name)
        assert "--zone" in several.value.hint


def test_candidates_of_a_search_that_is_not_decided_are_left_alone() -> None:
    labels = {**node().labels, "tpuctl-race": "r1"}
    provider = MemoryProvider(node(labels=labels))
    provider.nodes["second"] = node(labels=labels, id=NodeId("memory", "p", "us-east1-d", "n1", "uid-2"))
    for name in ("", "n1"):
        with pytest.raises(StateError, match="'n1' is not decided"):
            find(provider, name)


@pytest.mark.parametrize(
    ("nodes", "sentence", "hint"),
    [
        ((), "No answer from us-east1-d: your TPU may be there.", "--zone"),
        (
            (node(),),
            "No answer from us-east1-d: another TPU of yours may be there.",
            "If you mean 'n1', name it.",
        ),
    ],
)
def test_a_silent_zone_may_hold_a_node_of_the_user(nodes: tuple[Node], sentence: str, hint: str) -> None:
    provider = MemoryProvider(*nodes)
    provider.unreachable = ("us-east1-d",)
    with pytest.raises(DeadlineError) as silent:
        find(provider)
    assert silent.value.message == sentence
    assert hint in silent.value.hint


def test_a_silent_zone_does_not_hide_a_node_that_is_named() -> None:
    provider = MemoryProvider(node())
    provider.unreachable = ("us-east1-d",)
    assert find(provider, "n1").node.name == "n1"
    with pytest.raises(DeadlineError, match="'n2' may be there"):
        find(provider, "n2")


@pytest.mark.parametrize(
    ("state", "error", "hint"),
    [
        (NodeState.CREATING, StateError, "tpuctl wait n1"),
        (NodeState.REPAIRING, StateError, "tpuctl wait n1"),
        (NodeState.STOPPED, StateError, "tpuctl start n1"),
        (NodeState.PREEMPTED, PreemptedError, "tpuctl down n1"),
        (NodeState.DELETING, StateError, "tpuctl why n1"),
    ],
)
@pytest.mark.parametrize("name", ["", "n1"])
def test_a_node_that_is_not_ready_says_what_to_type(
    state: NodeState, error: type[TpuctlError], hint: str, name: str
) -> None:
    with pytest.raises(error, match=f"Node 'n1' is its {state}") as refused:
        find(MemoryProvider(node(state=state)), name)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("state", "hint"),
    [(QueueState.WAITING, "tpuctl wait q1"), (QueueState.SUSPENDED, "tpuctl why q1")],
)
def test_a_request_without_hosts_yet_says_what_to_type(state: QueueState, hint: str) -> None:
    for name in ("", "q1", "n1"):
        with pytest.raises(StateError, match=f"'q1' has no hosts: it is its {state}") as waiting:
            find(queue(MemoryProvider(), state), name)
        assert hint in waiting.value.hint


def test_a_request_that_has_failed_says_why() -> None:
    failure = StateError("Out of quota.")
    with pytest.raises(StateError, match="Out of quota"):
        find(queue(MemoryProvider(), QueueState.FAILED, failure=failure), "q1")


def test_a_slice_is_meant_by_its_own_name_and_all_by_that_of_their_request() -> None:
    slices = [node(name, queued_resource="q1") for name in ("q1-0", "q1-1")]
    provider = queue(MemoryProvider(*slices), QueueState.ACTIVE, nodes=tuple(item.id for item in slices))
    assert find(provider, "q1-1").node.name == "q1-1"
    whole = find(provider, "q1")
    assert (whole.node.name, whole.workers) == ("q1", (0, 1))


def test_a_worker_without_a_published_host_key_is_not_trusted() -> None:
    hosts = Hosts(PAIR, (0, 1), {0: "host key 0"})
    assert hosts.host_key(0) == "host key 0"
    with pytest.raises(HostError, match=r"worker 1 of 'n2': it has published no host key") as missing:
        hosts.host_key(1)
    assert "tpuctl wait n2" in missing.value.hint


def test_a_key_that_the_node_has_is_not_added_again() -> None:
    provider, ssh, reports = MemoryProvider(node(metadata={KEY.public_key: ""})), MemorySsh(), list[str]()
    hosts = find(provider)
    assert admission_requests(provider, hosts.node, KEY) == []
    assert admit(provider, ssh, hosts, KEY, reports.append) is hosts  # type: ignore[arg-type]
    assert (ssh.reached, reports) == ([], [])


class Refusing(MemorySsh):
    """Hosts that refuse the key a few times, then raise or accept."""

    def __init__(self, refusals: int, error: HostError | None = None) -> None:
        super().__init__()
        self._errors = [HostError("refused", login="refused")] * refusals + ([error] if error else [])

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[Refusing]:
        self.reached.append((node.name, worker, host_key))
        if self._errors:
            raise self._errors.pop(0)
        yield self


@pytest.mark.parametrize("error", [None, HostError("it is down")])
def test_a_new_key_is_awaited_while_hosts_refuse_it(
    passing_time: PassingTime, error: HostError | None
) -> None:
    provider, ssh = MemoryProvider(node(labels={})), Refusing(3, error)
    hosts = find(provider, "n1")
    assert [request.method for request in admission_requests(provider, hosts.node, KEY)] == ["UpdateNode"]
    reports = list[str]()
    admitted = admit(provider, ssh, hosts, KEY, reports.append)  # type: ignore[arg-type]
    assert reports[-1] == "waiting until the hosts know it"
    assert KEY.public_key in admitted.node.metadata
    assert len(ssh.reached) == 4


class TestKeyThatOthersOverwrite:
    """Metadata is replaced as a whole: who read before our key was there writes without it."""

    @pytest.fixture(autouse=True)
    def _looks_always(self, monkeypatch: pytest.MonkeyPatch, passing_time: PassingTime) -> None:
        monkeypatch.setattr(way_in, "LOOK_INTERVAL", 0)

    class Overwritten(MemorySsh):
        """Hosts that let in who is in the metadata; another client writes its own `times` times."""

        def __init__(self, provider: MemoryProvider, times: int, *, late: bool) -> None:
            super().__init__()
            self._provider, self._times, self._late = provider, times, late

        @contextmanager
        def connect(
            self, node: Node, worker: int, host_key: str
        ) -> Iterator[TestKeyThatOthersOverwrite.Overwritten]:
            self.reached.append((node.name, worker, host_key))
            if not self._late:
                self._overwrite()
            if KEY.public_key not in self._provider.nodes["n1"].metadata:
                raise HostError("refused", login="refused")
            if self._late:
                self._overwrite()
            yield self

        def _overwrite(self) -> None:
            if self._times:
                self._times -= 1
                self._provider.nodes["n1"] = node(metadata={"theirs": ""})

    @pytest.mark.parametrize("late", [False, True], ids=["before the host knows it", "once it has let us in"])
    def test_it_is_added_again_until_it_stays(self, late: bool) -> None:
        provider, reports = MemoryProvider(node()), list[str]()
        ssh = self.Overwritten(provider, 3, late=late)
        admitted = admit(provider, ssh, find(provider), KEY, reports.append)  # type: ignore[arg-type]
        assert set(provider.nodes["n1"].metadata) == set(admitted.node.metadata) == {KEY.public_key, "theirs"}
        assert len(ssh.reached) == 4
        assert reports.count("adding your SSH key to n1") == 4

    def test_a_node_that_ends_meanwhile_says_so(self) -> None:
        class Ending(MemoryProvider):
            def get_node(self, identity: NodeId) -> Node:
                found = super().get_node(identity)
                return replace(found, state=NodeState.PREEMPTED) if refusing.reached else found

        refusing = Refusing(1000)
        with pytest.raises(PreemptedError):
            admit(Ending(node()), refusing, find(MemoryProvider(node())), KEY, [].append)  # type: ignore[arg-type]


def test_a_host_that_refuses_a_new_key_for_ever_is_left_to_the_command(passing_time: PassingTime) -> None:
    provider = MemoryProvider(node(labels={}))
    admit(provider, Refusing(1000), find(provider, "n1"), KEY, lambda _: None)  # type: ignore[arg-type]
    assert passing_time.clock() == pytest.approx(KEY_ARRIVAL)


def test_a_worker_without_a_host_key_does_not_keep_the_others_waiting() -> None:
    provider, ssh = MemoryProvider(PAIR), MemorySsh()
    hosts = Hosts(PAIR, (0, 1), {1: "host key 1"})
    admit(provider, ssh, hosts, KEY, lambda _: None)  # type: ignore[arg-type]
    assert ssh.reached == [("n2", 1, "host key 1")]


CLIENTS = 12


def test_of_twelve_clients_that_add_their_keys_at_once_each_gets_in(
    home: Path, tmp_path: Path, tpuctl: Tpuctl
) -> None:
    """As jobs of a CI do, half by `exec` and half by `submit`; a host hears of a change a second later."""
    simulator = RunningSimulator(tmp_path / "state" / "sim", key_delay=1.0)
    cloud = connect(load({}))
    try:
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
        together = Barrier(CLIENTS)

        def get_in(number: int) -> str:
            make_key(tmp_path / f"key-{number}")
            ssh = Ssh(f"user{number}", tmp_path / f"key-{number}", cloud._dial)
            hosts, key = find_hosts(cloud.provider, "n1", ALL_WORKERS, "ada", None), ssh.login_key()
            together.wait()
            if number % 2:
                hosts = admit(cloud.provider, ssh, hosts, key, lambda _: None)
            else:
                grant_access(cloud.provider, ssh, hosts.node, key, lambda _: None)
            patient = patient_ssh(cloud.provider, ssh, hosts.node)
            with patient.connect(hosts.node, 0, hosts.host_key(0)) as session:
                return session.run(["echo", str(number)]).stdout.strip()

        with ThreadPoolExecutor(CLIENTS) as clients:
            assert list(clients.map(get_in, range(CLIENTS))) == [str(number) for number in range(CLIENTS)]
        lines = simulator.world.nodes.all()[0].metadata["ssh-keys"].splitlines()
        assert {line.partition(":")[0] for line in lines} >= {f"user{number}" for number in range(CLIENTS)}
    finally:
        cloud.close()
        simulator.close()


FOUR = node("n4", addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"))


@pytest.mark.parametrize(
    ("text", "workers"),
    [("all", (0, 1, 2, 3)), ("0", (0,)), ("1,3", (1, 3)), ("0-2", (0, 1, 2)), (" 3 , 1-1, 1 ", (1, 3))],
)
def test_a_set_of_workers_is_ascending_and_names_each_once(text: str, workers: tuple[int, ...]) -> None:
    assert parse_workers(text).select(FOUR) == workers


@pytest.mark.parametrize(
    "text", ["", ",", "x", "-1", "1-", "3-1", "1,,2", "0x1", "1.0", "ALL", "all,1", "\u0661", "1" * 5000]
)
def test_any_other_text_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="names no workers") as error:
        parse_workers(text)
    assert "0-3,7" in error.value.hint


@pytest.mark.parametrize(("text", "missing"), [("4", 4), ("0,9", 9), ("2-999999", 4), ("7-9", 7)])
def test_a_worker_that_is_not_there_is_named_with_those_that_are(text: str, missing: int) -> None:
    with pytest.raises(NotFoundError, match=rf"^'n4' has no worker {missing}: its workers are 0 to 3\.$"):
        parse_workers(text).select(FOUR)


def test_a_node_of_one_host_says_so() -> None:
    with pytest.raises(NotFoundError, match=r"^'n1' has no worker 1: its workers are 0 only\.$"):
        only_worker(1).select(node())


def test_a_host_is_named_by_its_node_and_its_worker() -> None:
    assert parse_host_name("n1") == HostName("n1")
    assert parse_host_name("n1@3") == HostName("n1", only_worker(3))
    assert parse_host_name("n1@all") == HostName("n1", ALL_WORKERS)


@pytest.mark.parametrize("text", ["", "@", "@3", "n1@"])
def test_half_a_host_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no host"):
        parse_host_name(text)


def test_workers_are_named_by_the_name_or_by_the_option_but_not_twice() -> None:
    assert chosen_workers(parse_host_name("n1"), None, only_worker(0)) == only_worker(0)
    assert chosen_workers(parse_host_name("n1@3"), None, only_worker(0)) == only_worker(3)
    assert chosen_workers(parse_host_name("n1"), "all", only_worker(0)) == ALL_WORKERS
    with pytest.raises(UsageError, match="named twice"):
        chosen_workers(parse_host_name("n1@3"), "3", only_worker(0))


@pytest.mark.parametrize(
    ("host", "worker"),
    [
        ("n1", 0), ("n1.w3", 3), ("n1.tpuctl", 0), ("n1.w12.sim.tpuctl", 12), ("n1.sim.tpuctl", 0), ("2", 2),
        ("n1.z-1.tpuctl", 0), ("n1.z-1.w3.sim.tpuctl", 3),
    ],
)  # fmt: skip
def test_a_name_of_an_entry_means_a_worker(host: str, worker: int) -> None:
    assert worker_of_entry("n1", host, "z-1") == only_worker(worker)
    if "z-1" not in host:
        assert worker_of_entry("n1", host, "") == only_worker(worker)


def test_a_name_of_another_entry_means_none() -> None:
    for host in ("other.w1.tpuctl", "n1-w1.tpuctl", "n1.z-2.w1.tpuctl"):
        with pytest.raises(UsageError):
            worker_of_entry("n1", host, "z-1")
