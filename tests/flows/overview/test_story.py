"""The story of a TPU, from what the provider remembers and what runs and keepers wrote."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tpuctl import runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConfigError, DeadlineError, NotFoundError, StockoutError
from tpuctl.flows.overview.story import MOST_RUNS, Story, tell
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.keeper.records import Deletion
from tpuctl.host.keeper.records import encode as encode_deletion
from tpuctl.nodes import Node, NodeId, NodeState, PastChange, QueueState
from tpuctl.runs import Run, Verdict, encode

NOW = datetime(2026, 1, 1, 20, tzinfo=UTC)
THIS = node(id=NodeId("cloud-tpu", TPU.project, TPU.zone, "n1", TPU.uid))
PATHS = NodePaths.of(TPU.id)


def at(hour: int, minute: int = 0) -> str:
    return f"2026-01-01T{hour:02}:{minute:02}:00Z"


class Site:
    """What the provider and the bucket know."""

    def __init__(self, *nodes: Node) -> None:
        self.provider = MemoryProvider(*nodes)
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.warnings: list[str] = []

    def remember(self, verb: str, began: str, ended: str = "", **fields: Any) -> None:
        change = PastChange(ZONE, fields.pop("name", "n1"), verb, began, ended, **fields)
        self.provider.past_changes.append(change)

    def tell(self, name: str = "n1", zone: str | None = None, get_bucket: Any = None) -> Story:
        return tell(self.provider, get_bucket or (lambda: self.bucket), name, zone, NOW, self.warnings.append)

    def events(self, **options: Any) -> list[tuple[str, str, str]]:
        return [(event.at, event.source, event.text) for event in self.tell(**options).events]


@pytest.fixture
def site() -> Site:
    """A READY node."""
    return Site(THIS)


class TestProvider:
    def test_what_was_asked_and_answered(self, site: Site) -> None:
        made = node(spot=True, metadata={"tpuctl-owner": "ada"})
        site.remember("create", at(10), at(10, 5), node=made)
        site.remember("stop", at(11))
        error = StockoutError("There is no capacity.", hint="Try later.")
        site.remember("start", at(12), at(12, 1), error=error)
        site.remember("start", at(13), error=error)
        assert site.events() == [
            (at(10), "provider", f"create of node n1 in {ZONE} asked for: v3-8, spot, image-2, by ada"),
            (at(10, 5), "provider", f"create of node n1 in {ZONE} done"),
            (at(11), "provider", f"stop of node n1 in {ZONE} asked for"),
            (at(12), "provider", f"start of node n1 in {ZONE} asked for"),
            (at(12, 1), "provider", f"start of node n1 in {ZONE} failed (stockout): There is no capacity."),
            (at(13), "provider", f"start of node n1 in {ZONE} asked for"),
            (at(13), "provider", f"start of node n1 in {ZONE} failed (stockout): There is no capacity."),
        ]
        assert site.tell().hint == "Try later."

    def test_of_one_second_a_delete_comes_last(self, site: Site) -> None:
        site.remember("delete", at(10))
        site.remember("create", at(10), node=node(labels={}))
        assert [text.split()[0] for _, _, text in site.events()] == ["create", "delete"]

    @pytest.mark.parametrize(
        ("metadata", "words"),
        [
            ({"tpuctl-ttl": "3600s"}, ["its time to live was over; its keeper left no record"]),
            ({"tpuctl-ttl": "3602s"}, []),
            ({"tpuctl-ttl": "7200s", "tpuctl-idle": "3600s"},
             ["deleted by somebody, or by its keeper as nobody used it, which left no record"]),
            ({"tpuctl-idle": "3601s"}, []),
            ({}, []),
        ],
    )  # fmt: skip
    def test_a_deletion_without_a_record_of_its_keeper_is_told_by_the_operations(
        self, site: Site, metadata: dict[str, str], words: list[str]
    ) -> None:
        site.remember("create", at(0), at(0, 5), node=node(metadata=metadata))
        site.remember("delete", at(0, 30), error=StockoutError("No."))  # one that failed
        site.remember("delete", at(1), at(1, 1))
        site.remember("delete", at(2))  # of another one, which nobody knows
        known = [text for _, _, text in site.events()]
        assert known[known.index(f"delete of node n1 in {ZONE} failed (stockout): No.") + 1 : -3] == words
        record = Deletion("p", "z", "n1", "7", "", "expired", at(1), "", at(1))
        site.memory.put(f"{PATHS.keeper}expired-1.json", encode_deletion(record))
        assert not {*words} & {text for _, _, text in site.events()}

    def test_the_deletion_of_a_queued_resource_ends_its_node(self, site: Site) -> None:
        queued = node(metadata={"tpuctl-ttl": "3600s"}, queued_resource="n1")
        site.remember("create", at(0), at(0, 5), node=queued)
        site.remember("delete", at(1), of_queued_resource=True)
        assert (at(1), "provider", "its time to live was over; its keeper left no record") in site.events()

    def test_a_later_change_makes_good_for_a_failure(self, site: Site) -> None:
        site.remember("start", at(12), at(12, 1), error=StockoutError("No.", hint="Try later."))
        site.remember("start", at(13), at(13, 1))
        assert site.tell().hint == ""

    def test_a_queued_resource_tells_of_itself_and_its_nodes(self) -> None:
        site = Site()
        site.provider.queue["q1"] = queued_resource(created=at(9))
        site.remember("create", at(9), name="q1", of_queued_resource=True)
        site.remember("create", at(9, 30), name="n1")
        expected = [
            (at(9), "provider", f"create of queued resource q1 in {ZONE} asked for"),
            (at(9), "provider", "queued resource q1 asked for v3-8 as n1"),
            (at(9, 30), "provider", f"create of node n1 in {ZONE} asked for"),
        ]
        assert site.events(name="q1") == site.events(name="n1") == expected

    def test_what_does_not_answer_is_a_gap(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        site.provider.unreachable = ("europe-west4-a",)
        assert site.tell().gaps == ("no answer from europe-west4-a",)

        def fail(*_: object) -> None:
            raise DeadlineError("No answer.")

        monkeypatch.setattr(site.provider, "history", fail)
        story = site.tell()
        assert story.gaps == (
            "the provider's operations are unknown: No answer.", "no answer from europe-west4-a",
        )  # fmt: skip


class TestBucket:
    def submit(self, site: Site, name: str = "r1") -> StoredRun:
        run = StoredRun(site.bucket, name)
        run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0,)))
        return run

    def test_runs_begin_and_end(self, site: Site) -> None:
        self.submit(site)
        verdict = Verdict("r1", runs.FAILED, 1, at(14), "because", 3)
        site.memory.put("runs/r1/verdict.json", encode(verdict))
        assert site.events() == [
            (at(12), "bucket", "run r1 started (attempt 1)"), (at(14), "bucket", "run r1 failed: because"),
        ]  # fmt: skip
        assert site.tell().command == "tpuctl submit SCRIPT --tpu n1"

    def test_of_many_the_newest_are_told_and_the_others_counted(self, site: Site) -> None:
        for number in range(MOST_RUNS):
            self.submit(site, f"r{number}")
        before = site.memory.requests(site.tell)
        assert not [text for _, _, text in site.events() if "before" in text]
        for number in range(MOST_RUNS, MOST_RUNS + 1003):
            self.submit(site, f"r{number}")
        texts = [text for _, _, text in site.events()]
        assert len(texts) == MOST_RUNS + 1
        assert "1,003 runs were started here before: 'tpuctl runs --limit 0' lists them" in texts
        assert "run r1022 started (attempt 1)" in texts
        assert site.memory.requests(site.tell) == before

    def test_the_newest_that_works_is_followed(self, site: Site) -> None:
        self.submit(site, "r1")
        site.memory.pass_time(60)
        self.submit(site, "r2")
        assert site.tell().command == "tpuctl logs r2 -f"

    @pytest.mark.parametrize(
        ("reason", "words"),
        [("expired", "its time to live was over"), ("idle", f"idle since {at(13)}")],
    )
    def test_a_keeper_says_why_it_deletes(self, site: Site, reason: str, words: str) -> None:
        record = Deletion("p", "z", "n1", "7", "", reason, at(14), "", at(13))
        site.memory.put(f"{PATHS.keeper}{reason}-1.json", encode_deletion(record))
        assert site.events() == [(at(12), "keeper", f"the TPU deletes itself: {words}")]

    def test_what_is_no_record_of_a_keeper_is_named(self, site: Site) -> None:
        site.memory.put(f"{PATHS.keeper}x.json", b"{")
        assert site.events() == []
        assert site.warnings[0].startswith(f"{PATHS.keeper}x.json is no record of a keeper: ")

    def test_nodes_of_another_name_or_zone_are_not_meant(self, site: Site) -> None:
        self.submit(site)
        site.memory.put("nodes/odd/runs/r1/1.json", b"{}")
        assert site.events(zone=TPU.zone) != []
        assert Site(THIS).events() == []
        with pytest.raises(NotFoundError):
            site.tell(name="n2")
        other = Site(replace(THIS, id=replace(THIS.id, zone="other-a")))
        TestBucket().submit(other)
        assert other.events(zone="other-a") == []

    def test_a_bucket_that_does_not_answer_is_a_gap(self, site: Site) -> None:
        def refuse() -> Bucket:
            raise ConfigError("No bucket is configured.")

        story = site.tell(get_bucket=refuse)
        assert story.gaps == ("the runs there are unknown: No bucket is configured.",)


class TestNow:
    def test_each_part_that_exists_has_a_sentence(self) -> None:
        site = Site(node(queued_resource="q1", health="UNHEALTHY"))
        site.provider.queue["q1"] = queued_resource(QueueState.ACTIVE)
        assert site.tell().now == (
            f"Node n1 in {ZONE} is its READY: UNHEALTHY.", f"Queued resource q1 in {ZONE} is its ACTIVE.",
        )  # fmt: skip

    def test_one_that_is_gone_does_not_bill_unless_a_zone_is_silent(self) -> None:
        site = Site()
        site.remember("delete", at(10))
        assert site.tell().now == ("'n1' does not exist any more: nothing of it bills.",)
        site.provider.unreachable = ("europe-west4-a",)
        assert site.tell().now == ("Whether 'n1' exists is unknown: no answer from europe-west4-a.",)

    @pytest.mark.parametrize(
        ("item", "command"),
        [
            (node(state=NodeState.PREEMPTED), f"tpuctl down n1 --zone {ZONE}"),
            (node(state=NodeState.PREEMPTED, labels={"managed-by": "terraform"}),
             "terraform apply -replace=ADDRESS"),
            (node(state=NodeState.STOPPED), f"tpuctl start n1 --zone {ZONE}"),
            (node(), "tpuctl submit SCRIPT --tpu n1"),
        ],
    )  # fmt: skip
    def test_the_next_command(self, item: Node, command: str) -> None:
        assert Site(item).tell().command == command

    def test_what_is_gone_is_made_again_as_it_was(self) -> None:
        site = Site()
        site.remember("create", at(10), node=node(accelerator="v2-8"))
        site.remember("create", at(11), node=node())
        assert site.tell().command == "tpuctl up v3-8 --name n1"
        unknown = Site()
        unknown.remember("delete", at(10))
        assert unknown.tell().command == "tpuctl ls"

    def test_a_request_that_failed_says_what_it_asks_for(self) -> None:
        site = Site()
        site.provider.queue["q1"] = queued_resource(QueueState.FAILED, error_hint="Ask for more quota.")
        story = site.tell(name="q1")
        assert (story.hint, story.command) == ("Ask for more quota.", f"tpuctl down q1 --zone {ZONE}")


class TestNobody:
    def test_a_name_that_nobody_knows(self, site: Site) -> None:
        with pytest.raises(NotFoundError) as error:
            site.tell(name="zzzzzz")
        assert error.value.message == (
            "Nobody knows a TPU 'zzzzzz': neither the provider's operations of the last days nor the bucket."
        )
        assert error.value.hint == "'tpuctl ls' lists those that exist."

    def test_one_that_is_nearly_another(self) -> None:
        site = Site(node("trainer"))
        with pytest.raises(NotFoundError) as error:
            site.tell(name="trainr")
        assert error.value.hint == "Did you mean trainer?"

    def test_one_that_a_silent_zone_may_know(self, site: Site) -> None:
        site.provider.unreachable = ("europe-west4-a",)
        with pytest.raises(DeadlineError, match="europe-west4-a"):
            site.tell(name="n2")

    @pytest.mark.parametrize("refused", ["the operations", "the bucket"])
    def test_one_that_those_may_know_who_refuse(
        self, site: Site, refused: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise ConfigError(f"No permission for {refused}.", hint="Ask an owner.")

        if refused == "the operations":
            monkeypatch.setattr(site.provider, "history", refuse)
        with pytest.raises(ConfigError) as error:
            site.tell(name="n2", get_bucket=refuse if refused == "the bucket" else None)
        assert error.value.message == f"Whether there was a TPU 'n2' is unknown. No permission for {refused}."
        assert error.value.hint == "Ask an owner."
