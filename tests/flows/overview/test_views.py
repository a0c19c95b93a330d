"""What a user has to know of a TPU, in words, and the command that follows.

Two looks at the TPUs: each change in a line.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.errors import ConfigError, NotFoundError, StateError, TpuctlError
from tpuctl.flows.nodes.lifetime import idle_limit
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.overview.node_runs import RunOnNode, Workload
from tpuctl.flows.overview.story import differences, snapshots
from tpuctl.flows.overview.views import (
    KeeperNotes,
    Overview,
    bills,
    cost_so_far,
    expiry,
    keeper_note,
    maintenance_words,
    next_command,
    take_overview,
    troubles,
    waiting_reason,
)
from tpuctl.host.keeper.records import Note
from tpuctl.nodes import Maintenance, Node, NodeState, QueueState, Symptom

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
PENDING = Maintenance("SCHEDULED", "PENDING", "2026-01-02T00:00:00Z", "2026-01-02T01:00:00Z", True)
TERRAFORM = {"managed-by": "terraform"}


class TestEnd:
    @pytest.mark.parametrize(
        ("metadata", "ends", "idle"),
        [
            ({}, "", 0),
            ({"tpuctl-ttl": "3600s"}, "2026-01-01T01:00:00Z", 0),
            ({"tpuctl-expires": "2026-01-01T03:00:00Z", "tpuctl-idle": "60s"}, "2026-01-01T03:00:00Z", 60),
            ({"tpuctl-ttl": "soon", "tpuctl-idle": "soon"}, "", 0),
        ],
    )
    def test_metadata_says_when_a_node_ends_by_itself(
        self, metadata: dict[str, str], ends: str, idle: int
    ) -> None:
        item = node(metadata=metadata)
        assert (expiry(item), idle_limit(item)) == (ends, idle)

    def test_the_time_of_a_queued_resource_begins_with_its_nodes(self) -> None:
        assert expiry(queued_resource(metadata={"tpuctl-ttl": "3600s"})) == ""


class TestCost:
    PRICE = Price(Decimal("7.2"), "USD")

    def test_it_counts_from_the_creation_to_a_cent(self) -> None:
        cost = cost_so_far(node(created="2026-01-01T00:30:05Z"), self.PRICE, NOW)
        assert cost == Price(Decimal("3.59"), "USD")
        assert cost_so_far(node(created="2026-01-01T01:00:01Z"), self.PRICE, NOW) == Price(
            Decimal("0.00"), "USD"
        )

    def test_nobody_knows_without_a_price_or_a_time(self) -> None:
        cost = cost_so_far(node(), unknown("no list"), NOW)
        assert cost
        assert not cost.is_known
        assert cost_so_far(node(created=""), self.PRICE, NOW) is None
        assert cost_so_far(queued_resource(), self.PRICE, NOW) is None

    def test_a_node_bills_until_it_is_stopped_or_lost(self) -> None:
        idle = {NodeState.STOPPED, NodeState.PREEMPTED, NodeState.GONE}
        assert {state for state in NodeState if not bills(node(state=state))} == idle
        assert not bills(queued_resource(QueueState.ACTIVE))


class TestTroubles:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({}, []),
            ({"health": "HEALTHY"}, []),
            ({"health": "HEALTHY", "health_description": "all is well"}, []),
            ({"health": "UNHEALTHY_TPU"}, ["UNHEALTHY_TPU"]),
            ({"health": "TIMEOUT", "health_description": "no answer"}, ["TIMEOUT: no answer"]),
            ({"state": NodeState.PREEMPTED}, ["taken back by the provider: never runs again"]),
            ({"symptoms": (Symptom("2", "OUT_OF_MEMORY", "", ""), Symptom("3", "HDD", "full", ""))},
             ["worker 2: OUT_OF_MEMORY", "worker 3: HDD (full)"]),
            ({"metadata": {"tpuctl-expires": "2026-01-01T01:00:00Z"}}, ["its time to live is over"]),
            ({"metadata": {"tpuctl-expires": "2026-01-01T01:00:01Z"}}, []),
        ],
    )  # fmt: skip
    def test_of_a_node(self, fields: dict[str, object], words: list[str]) -> None:
        assert list(troubles(node(**fields), None, NOW)) == words  # type: ignore[arg-type]
        announced = "maintenance pending 2026-01-02T00:00:00Z to 2026-01-02T01:00:00Z, can be rescheduled"
        with_notice = list(troubles(node(**fields), PENDING, NOW))  # type: ignore[arg-type]
        assert sorted(with_notice) == sorted([*words, announced])

    @pytest.mark.parametrize(
        ("announced", "words"),
        [
            (Maintenance("SCHEDULED", "ONGOING", "", "", False), "maintenance ongoing"),
            (Maintenance("SCHEDULED", "ONGOING", "", "B", False), "maintenance ongoing to B"),
            (Maintenance("SCHEDULED", "PENDING", "A", "B", False), "maintenance pending A to B"),
            (Maintenance("SCHEDULED", "PENDING", "A", "", True), "maintenance pending A, can be rescheduled"),
        ],
    )
    def test_maintenance_in_a_line(self, announced: Maintenance, words: str) -> None:
        assert maintenance_words(announced) == words

    @pytest.mark.parametrize(
        ("state", "fields", "words"),
        [
            (QueueState.WAITING, {}, ["waits for capacity"]),
            (QueueState.WAITING, {"valid_until": "T", "reservation": "r"},
             ["waits for reservation r, until T at the latest"]),
            (QueueState.ACTIVE, {}, []),
            (QueueState.FAILED, {}, ["failed: the provider does not say why"]),
            (QueueState.FAILED, {"error": "no chips", "error_kind": "stockout"},
             ["failed: stockout: no chips"]),
            (QueueState.FAILED, {"error": "no quota", "error_kind": "quota"}, ["failed: quota: no quota"]),
            (QueueState.FAILED, {"error": "oh", "error_kind": "other"}, ["failed: oh"]),
            (QueueState.SUSPENDED, {},
             ["suspended: has lost its nodes, takes quota until it is deleted"]),
            (QueueState.SUSPENDING, {"initiator": "SERVICE"},
             ["suspended by the service: has lost its nodes, takes quota until it is deleted"]),
            (QueueState.SUSPENDED, {"initiator": "USER"},
             ["suspended by the user: has lost its nodes, takes quota until it is deleted"]),
        ],
    )  # fmt: skip
    def test_of_a_queued_resource(
        self, state: QueueState, fields: dict[str, object], words: list[str]
    ) -> None:
        queued = queued_resource(state, **fields)
        assert list(waiting_reason(queued)) == list(troubles(queued, PENDING, NOW)) == words


class TestNextCommand:
    @pytest.mark.parametrize(
        ("state", "command"),
        [
            (NodeState.READY, "tpuctl submit SCRIPT --tpu n1"),
            (NodeState.STOPPED, "tpuctl start n1 --zone us-central1-b"),
            (NodeState.PREEMPTED, "tpuctl down n1 --zone us-central1-b"),
            (NodeState.CREATING, "tpuctl ls --watch"),
            (NodeState.DELETING, "tpuctl ls --watch"),
        ],
    )
    def test_of_a_node_without_a_run(self, state: NodeState, command: str) -> None:
        assert next_command(node(state=state), None) == command

    def test_of_a_node_with_a_run(self) -> None:
        run = RunOnNode("r1", 1, "2026-01-01T00:00:00Z", "running")
        assert next_command(node(state=NodeState.STOPPED), run) == "tpuctl logs r1 -f"

    def test_what_terraform_keeps_is_replaced_by_terraform(self) -> None:
        lost = node(state=NodeState.PREEMPTED, labels=TERRAFORM)
        assert next_command(lost, None) == "terraform apply -replace=ADDRESS"

    @pytest.mark.parametrize(
        ("state", "command"),
        [
            (QueueState.WAITING, "tpuctl ls --watch"),
            (QueueState.FAILED, "tpuctl down q1 --zone us-central1-b"),
            (QueueState.SUSPENDED, "tpuctl down q1 --zone us-central1-b"),
        ],
    )
    def test_of_a_queued_resource(self, state: QueueState, command: str) -> None:
        assert next_command(queued_resource(state), None) == command


class TestOverview:
    def refuse(self) -> object:
        raise ConfigError("No bucket is configured.")

    def test_without_a_node_nobody_asks_the_bucket(self) -> None:
        overview = take_overview(MemoryProvider(), lambda: pytest.fail("asked"), None, print)
        assert (overview.inventory.nodes, overview.workload.unknown) == ((), "")

    def test_what_cannot_be_read_is_said_and_raises_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        provider = MemoryProvider(node())
        overview = take_overview(provider, self.refuse, None, print)  # type: ignore[arg-type]
        assert (overview.workload.unknown, overview.maintenance_unknown) == ("No bucket is configured.", "")

        def unanswered(zone: str | None) -> dict[str, Maintenance]:
            raise StateError(f"No answer about {zone}.")

        monkeypatch.setattr(provider, "maintenance", unanswered)
        overview = take_overview(provider, self.refuse, "us-central1-b", print)  # type: ignore[arg-type]
        assert (overview.maintenance, overview.maintenance_unknown) == ({}, "No answer about us-central1-b.")


class TestKeepers:
    MORTAL = node(metadata={"tpuctl-ttl": "7200s"})

    def notes(self, monkeypatch: pytest.MonkeyPatch, answer: object, item: Node) -> object:
        provider = MemoryProvider(item)

        def host_notes(*asked: str) -> object:
            assert asked[1:] == ("tpuctl", "keeper")
            if isinstance(answer, TpuctlError):
                raise answer
            return answer

        monkeypatch.setattr(provider, "host_notes", host_notes)
        return KeeperNotes(provider).of([item])

    def test_those_of_nodes_that_are_to_end_are_asked_on_worker_0(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = {0: '{"worker": 0, "at": "01:59"}', 1: "other"}
        for item in (self.MORTAL, node(metadata={"tpuctl-idle": "60s"})):
            assert self.notes(monkeypatch, answer, item) == {"uid-0": Note(0, "01:59")}
        for item in (node(), replace(self.MORTAL, state=NodeState.STOPPED)):
            assert self.notes(monkeypatch, StateError("asked"), item) == {}
        for nothing in ({}, NotFoundError("The resource 'tpuctl/' of type 'Guest Attribute' was not found.")):
            assert self.notes(monkeypatch, nothing, self.MORTAL) == {"uid-0": None}

    def test_what_is_no_note_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        error = StateError("no answer")
        assert self.notes(monkeypatch, error, self.MORTAL) == {"uid-0": error}
        damaged = keeper_note(self.provider(monkeypatch, {0: "{"}), self.MORTAL)
        assert isinstance(damaged, TpuctlError)
        assert damaged.message.startswith("the note on worker 0 cannot be read: ")

    def test_who_asks_again_and_again_reads_each_once_a_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compute Engine allows ten queries of a VM's guest attributes a minute."""
        notes, now = {0: '{"worker": 0, "at": "01:00"}'}, 100.0
        keepers = KeeperNotes(self.provider(monkeypatch, notes), lambda: now)
        assert keepers.of([self.MORTAL]) == {"uid-0": Note(0, "01:00")}
        notes[0] = '{"worker": 0, "at": "02:00"}'
        for now, at in ((159.0, "01:00"), (160.0, "02:00")):  # noqa: B007  the clock reads it
            assert keepers.of([self.MORTAL]) == {"uid-0": Note(0, at)}
        assert keepers.of([]) == {}

    def provider(self, monkeypatch: pytest.MonkeyPatch, notes: dict[int, str]) -> MemoryProvider:
        provider = MemoryProvider(self.MORTAL)
        monkeypatch.setattr(provider, "host_notes", lambda *_: notes)
        return provider

    @pytest.mark.parametrize(
        ("note", "after", "silence"),
        [
            (Note(0, "2026-01-01T00:57:01Z"), 0, ""),
            (Note(0, "2026-01-01T00:57:00Z"), 0, "for 3 min"),
            (Note(0, "2026-01-01T00:51:00Z"), 0, "for 9 min"),
            (Note(0, "2025-12-31T22:00:00Z"), 0, "for 3 h"),
            (Note(0, "2026-01-01T09:00:00Z"), 0, ""),
            (Note(0, "soon"), 0, ""),
            (StateError("no answer"), 0, ""),
            (None, -2701, ""),  # 14 min 59 s after its creation
            (None, -2700, "for 15 min"),
        ],
    )
    def test_a_keeper_that_does_not_write_is_silent(
        self, note: Note | TpuctlError | None, after: int, silence: str
    ) -> None:
        now = NOW + timedelta(seconds=after)
        overview = Overview(Inventory((Allocation((self.MORTAL,)),)), Workload(), keepers={"uid-0": note})
        assert overview.silence(self.MORTAL, now) == silence
        words = [f"keeper silent {silence}: it may not end by itself"] if silence else []
        assert list(overview.troubles(self.MORTAL, now)) == words

    def test_one_that_nobody_asked_is_not_called_silent(self) -> None:
        overview = Overview(Inventory((Allocation((self.MORTAL,)),)), Workload())
        assert overview.silence(self.MORTAL, NOW) == ""


START = datetime(2026, 1, 1, tzinfo=UTC)
READY = Overview(Inventory((Allocation((node(),)),)), Workload())
EMPTY = Overview(Inventory(()), Workload())


def lines(before: Overview, after: Overview) -> list[str]:
    return [change.line for change in differences(snapshots(before, START), after, START)]


def test_a_node_comes_changes_and_goes() -> None:
    creating = Overview(Inventory((Allocation((node(state=NodeState.CREATING),)),)), Workload())
    assert lines(EMPTY, creating) == [f"n1 in {ZONE}: its CREATING"]
    assert lines(creating, READY) == [f"n1 in {ZONE}: its CREATING -> its READY"]
    assert lines(READY, READY) == []
    assert lines(READY, EMPTY) == [f"n1 in {ZONE}: its READY -> gone"]


def test_a_zone_that_does_not_answer_has_not_changed() -> None:
    assert lines(READY, Overview(Inventory((), (ZONE,)), Workload())) == []
    assert lines(READY, Overview(Inventory((), ("other",)), Workload())) == [
        f"n1 in {ZONE}: its READY -> gone"
    ]


def test_its_run_and_its_troubles_are_part_of_it() -> None:
    run = RunOnNode("r1", 1, "2026-01-01T00:00:00Z", "running")
    announced = {"uid-0": Maintenance("SCHEDULED", "PENDING", "", "", False)}
    after = Overview(READY.inventory, Workload({"uid-0": run}), announced)
    assert lines(READY, after) == [f"n1 in {ZONE}: its READY (r1 running; maintenance pending)"]
    assert lines(after, READY) == [f"n1 in {ZONE}: its READY"]
    assert lines(after, EMPTY) == [f"n1 in {ZONE}: its READY -> gone"]


def test_a_queued_resource_is_told_from_its_node() -> None:
    waiting = Overview(Inventory((Allocation((), queued_resource()),)), Workload())
    both = Overview(
        Inventory((Allocation((node(name="q1"),), queued_resource(QueueState.ACTIVE)),)), Workload()
    )
    assert lines(EMPTY, waiting) == [f"queued resource q1 in {ZONE}: its WAITING (waits for capacity)"]
    assert lines(waiting, both) == [
        f"q1 in {ZONE}: its READY", f"queued resource q1 in {ZONE}: its WAITING -> its ACTIVE",
    ]  # fmt: skip
