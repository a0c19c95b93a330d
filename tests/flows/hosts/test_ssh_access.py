"""Tests adding our key to a node and waiting for every host: how long, and the error afterwards.

A change of a node's metadata, which is replaced as a whole: what other clients change stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, MemorySsh, node
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.ssh import CommandResult
from tpuctl.errors import ConflictError, DeadlineError, HostError, PreemptedError, StateError
from tpuctl.flows.hosts import way_in
from tpuctl.flows.hosts.bucket_access import change_metadata
from tpuctl.flows.hosts.way_in import await_hosts, await_ssh, grant_access, install_key
from tpuctl.nodes import Change, Node, NodeId, NodeState, SshKey, UpdateNode

KEY = SshKey("ada", "ssh-ed25519 AAAA")
TWO_HOSTS = node(addresses=("10.0.0.1", "10.0.0.2"))


class Starting(MemorySsh):
    """Hosts whose first commands fail: `outcomes` are exit codes, or the error of the connection."""

    def __init__(self, *outcomes: int | HostError) -> None:
        super().__init__()
        self._outcomes = list(outcomes)

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[Starting]:
        self.reached.append((node.name, worker, host_key))
        if self._outcomes and isinstance(self._outcomes[0], HostError):
            raise self._outcomes.pop(0)  # type: ignore[misc]  # just looked at
        yield self

    def run(self, argv: Sequence[str]) -> CommandResult:
        return CommandResult(int(self._outcomes.pop(0)) if self._outcomes else 0, "", "")  # type: ignore[call-overload]


def test_a_key_that_a_node_has_is_not_added_again() -> None:
    provider, reports = MemoryProvider(), list[str]()
    install_key(provider, node(metadata={KEY.public_key: ""}), KEY, reports.append)
    assert (provider.nodes, reports) == ({}, [])


def test_a_key_is_given_two_minutes(passing_time: PassingTime) -> None:
    class Unfinished(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            return Operation("Node 'n1'", lambda: False)

    with pytest.raises(DeadlineError, match="Waited 120 s for Node 'n1' to accept the SSH key"):
        install_key(Unfinished(node()), node(), KEY, [].append)
    assert passing_time.now == pytest.approx(120)


def test_every_host_is_reached_by_its_own_host_key() -> None:
    ssh, reports = MemorySsh(), list[str]()
    await_ssh(MemoryProvider(TWO_HOSTS), ssh, TWO_HOSTS, KEY, reports.append)
    assert sorted(ssh.reached) == [("n1", 0, "host key 0"), ("n1", 1, "host key 1")]
    assert reports == ["waiting for SSH on 2 hosts"]


def test_host_keys_that_are_never_all_published_are_given_five_minutes(passing_time: PassingTime) -> None:
    class HalfPublished(MemoryProvider):
        def host_keys(self, node: NodeId) -> Mapping[int, str]:
            return {1: "host key 1"}

    with pytest.raises(DeadlineError, match="Waited 300 s for the host keys of 'n1'") as timeout:
        await_ssh(HalfPublished(TWO_HOSTS), MemorySsh(), TWO_HOSTS, KEY, [].append)
    assert "--host-keys first-contact" in timeout.value.hint
    assert passing_time.now == pytest.approx(300)


def test_a_host_that_never_answers_is_given_five_minutes_and_named_with_the_reason(
    passing_time: PassingTime,
) -> None:
    ssh = MemorySsh(HostError("Connection refused.", hint="Is it up?"))
    with pytest.raises(HostError) as unreachable:
        await_ssh(MemoryProvider(node()), ssh, node(), KEY, [].append)
    assert unreachable.value.message == "Worker 0 of 'n1' is not reachable: Connection refused. Is it up?"
    assert passing_time.now == pytest.approx(300)


def test_a_host_that_starts_is_tried_until_it_runs_a_command(passing_time: PassingTime) -> None:
    ssh = Starting(HostError("Connection refused."), 255, 0)
    await_ssh(MemoryProvider(node()), ssh, node(), KEY, [].append)
    assert len(ssh.reached) == 3
    assert len(passing_time.pauses) == 2


def test_a_host_that_takes_the_login_and_runs_nothing_is_not_reachable(passing_time: PassingTime) -> None:
    with pytest.raises(HostError) as unreachable:
        await_ssh(MemoryProvider(node()), Starting(*[1] * 1000), node(), KEY, [].append)
    assert unreachable.value.message == "Worker 0 of 'n1' is not reachable: 'true' ended with exit code 1."


def test_a_wrong_host_key_is_not_tried_again(passing_time: PassingTime) -> None:
    ssh = Starting(HostError("It is another host.", host_key="wrong"), 0)
    with pytest.raises(HostError, match="It is another host"):
        await_ssh(MemoryProvider(node()), ssh, node(), KEY, [].append)
    assert (len(ssh.reached), passing_time.pauses) == (1, [])


class TestHostsThatAreNotListed:
    PARTIAL = node(addresses=("10.0.0.1",), accelerator="v4-16")
    WHOLE = node(addresses=("10.0.0.1", "10.0.0.2"), accelerator="v4-16")

    def test_a_node_that_lists_all_is_not_looked_at(self) -> None:
        assert await_hosts(MemoryProvider(), self.WHOLE, [].append) is self.WHOLE

    def test_the_rest_is_waited_for_and_every_host_reached(self, passing_time: PassingTime) -> None:
        provider, reports = MemoryProvider(self.PARTIAL), list[str]()

        def report(line: str) -> None:
            reports.append(line)
            provider.nodes["n1"] = self.WHOLE

        ssh = MemorySsh()
        assert await_ssh(provider, ssh, self.PARTIAL, KEY, report) == self.WHOLE
        assert sorted(worker for _, worker, _ in ssh.reached) == [0, 1]
        assert reports == [
            "waiting for the hosts of n1: the provider lists 1 of its 2 hosts",
            "waiting for SSH on 2 hosts",
        ]

    def test_they_are_given_five_minutes(self, passing_time: PassingTime) -> None:
        with pytest.raises(DeadlineError) as late:
            await_ssh(MemoryProvider(self.PARTIAL), MemorySsh(), self.PARTIAL, KEY, [].append)
        assert late.value.message == "Waited 300 s for the addresses of all hosts of 'n1'."
        assert passing_time.now == pytest.approx(300)

    def test_a_node_that_ends_ends_the_wait(self, passing_time: PassingTime) -> None:
        ended = node(state=NodeState.PREEMPTED, accelerator="v4-16")
        with pytest.raises(PreemptedError):
            await_hosts(MemoryProvider(ended), self.PARTIAL, [].append)


class TestNodeThatChangesMeanwhile:
    """The node is looked at while its hosts do not answer."""

    @pytest.fixture(autouse=True)
    def looks_always(self, monkeypatch: pytest.MonkeyPatch, passing_time: PassingTime) -> None:
        monkeypatch.setattr(way_in, "LOOK_INTERVAL", 0)

    @pytest.mark.parametrize(
        ("state", "error"), [(NodeState.PREEMPTED, PreemptedError), (NodeState.STOPPED, StateError)]
    )
    def test_a_node_that_ends_ends_the_wait(self, state: NodeState, error: type[Exception]) -> None:
        ssh = MemorySsh(HostError("Connection refused."))
        with pytest.raises(error, match=f"is its {state}"):
            await_ssh(MemoryProvider(node(state=state)), ssh, node(), KEY, [].append)

    def test_host_keys_of_a_node_that_ends_are_not_waited_for(self) -> None:
        class Unpublished(MemoryProvider):
            def host_keys(self, node: NodeId) -> Mapping[int, str]:
                return {}

        with pytest.raises(PreemptedError):
            await_ssh(Unpublished(node(state=NodeState.PREEMPTED)), MemorySsh(), node(), KEY, [].append)

    def test_a_key_that_another_client_has_overwritten_is_added_again(self) -> None:
        provider, reports = MemoryProvider(node()), list[str]()
        await_ssh(provider, Starting(HostError("Permission denied."), 0), node(), KEY, reports.append)
        assert provider.ssh_key_change(provider.nodes["n1"], KEY) is None
        assert reports[-1] == "adding your SSH key to n1"

    def test_a_key_that_is_overwritten_once_every_host_answers_is_added_again(self) -> None:
        """Whoever logs in next is refused: `submit`, on the hosts that answered first."""

        class Overwriting(Starting):
            def run(self, argv: Sequence[str]) -> CommandResult:
                if len(self.reached) == 1:
                    provider.nodes["n1"] = node(metadata={"another key": ""})
                return super().run(argv)

        provider, ssh = MemoryProvider(node()), Overwriting()
        granted = grant_access(provider, ssh, node(), KEY, [].append)
        kept = provider.nodes["n1"].metadata
        assert set(granted.metadata) == set(kept) == {KEY.public_key, "another key"}
        assert len(ssh.reached) == 2

    def test_a_key_that_is_overwritten_at_once_is_added_until_it_stays(self) -> None:
        class Contended(MemoryProvider):
            overwritten = 0

            def begin(self, change: Change) -> Operation:
                operation = super().begin(change)
                if self.overwritten < 2:
                    self.overwritten += 1
                    self.nodes["n1"] = node(metadata={"another key": ""})
                return operation

        provider = Contended(node())
        granted = install_key(provider, node(), KEY, [].append)
        assert set(granted.metadata) == {KEY.public_key, "another key"}
        assert provider.overwritten == 2


class Contested(MemoryProvider):
    """One on which another client's change takes effect after ours, `times` times, so that ours is lost."""

    def __init__(self, times: int) -> None:
        super().__init__(node(metadata={"theirs": "0"}))
        self.times = times
        self.changes = 0

    def begin(self, change: Change) -> Operation:
        self.changes += 1
        if self.times:
            self.times -= 1
            self.nodes["n1"] = node(metadata={"theirs": str(self.changes)})
            return Operation("Node 'n1'", lambda: True)
        return super().begin(change)


def set_own(existing: Node) -> UpdateNode | None:
    if existing.metadata.get("own") == "1":
        return None
    return UpdateNode(existing, metadata={**existing.metadata, "own": "1"})


def test_a_node_that_needs_no_change_is_left_alone() -> None:
    provider = Contested(0)
    existing = node(metadata={"own": "1"})
    assert change_metadata(provider, existing, set_own, "to change") is existing
    assert provider.changes == 0


def test_a_change_is_made_once_and_the_node_is_returned_with_it() -> None:
    provider = Contested(0)
    changed = change_metadata(provider, node(metadata={"theirs": "0"}), set_own, "to change")
    assert changed.metadata == {"theirs": "0", "own": "1"}
    assert provider.changes == 1


def test_a_change_that_another_client_has_overwritten_is_made_again_beside_that_of_the_other(
    passing_time: PassingTime,
) -> None:
    provider = Contested(7)
    changed = change_metadata(provider, node(), set_own, "to change")
    assert changed.metadata == {"theirs": "7", "own": "1"}
    assert provider.changes == 8


def test_after_two_minutes_of_changes_by_others_it_is_an_error(passing_time: PassingTime) -> None:
    with pytest.raises(ConflictError) as error:
        change_metadata(Contested(1000), node(), set_own, "to change")
    assert error.value.message == "The metadata of 'n1' is being changed by another client."
    assert error.value.hint == "Try again."
    assert 100 < passing_time.now <= 120


def test_what_others_have_changed_since_the_node_was_read_stays() -> None:
    """`submit` reads the node, asks its user, and adds the key: meanwhile others have added theirs."""
    provider = MemoryProvider(node(metadata={"theirs": "new"}))
    changed = change_metadata(provider, node(metadata={"theirs": "old"}), set_own, "to change")
    assert changed.metadata == {"theirs": "new", "own": "1"}


def test_a_change_that_is_refused_during_another_one_is_made_again_beside_its_outcome(
    passing_time: PassingTime,
) -> None:
    class Busy(MemoryProvider):
        """Google refuses a change while another one runs, whose outcome is seen at its end."""

        refusals = 5

        def begin(self, change: Change) -> Operation:
            if self.refusals:
                self.refusals -= 1
                self.nodes["n1"] = node(metadata={"theirs": str(5 - self.refusals)})
                raise ConflictError("Node 'n1' is being changed by another request.")
            return super().begin(change)

    changed = change_metadata(Busy(node()), node(), set_own, "to change")
    assert changed.metadata == {"theirs": "5", "own": "1"}
    assert len(passing_time.pauses) == 5, "the other one takes its time"


def test_a_change_is_given_two_minutes(passing_time: PassingTime) -> None:
    class Unfinished(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            return Operation("Node 'n1'", lambda: False)

    with pytest.raises(DeadlineError, match=r"^Waited 120 s for Node 'n1' to change\."):
        change_metadata(Unfinished(node()), node(), set_own, "to change")
    assert passing_time.now == pytest.approx(120)
