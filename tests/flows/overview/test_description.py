"""Every fact of a TPU, with where it is from, without a cloud.

The newest run of a node, whatever names others write into the node's folder.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import CREATED, TPU, write_run, write_status
from tpuctl.bucket_layout import NodePaths
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConfigError, DeadlineError, HostError, NotFoundError, TpuctlError
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.nodes.plan import Prices
from tpuctl.flows.overview.description import facts_of, find_overview
from tpuctl.flows.overview.node_runs import RunOnNode, Workload, runs_on, workload
from tpuctl.flows.overview.views import Overview
from tpuctl.host.keeper.records import Note
from tpuctl.host.worker.records import RUNNING
from tpuctl.nodes import Maintenance, Node, NodeId, NodeState, QueueState, Symptom
from tpuctl.runs import Verdict, encode

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
KNOWN = Price(Decimal("8"), "USD", "Cloud Billing Catalog", "2026-01-01")


def facts(
    allocation: Allocation, price: Price = KNOWN, note: Note | TpuctlError | None = None, **overview: Any
) -> dict[str, tuple[str, str]]:
    keepers = {"uid-0": note} if allocation.nodes and allocation.nodes[0].metadata else {}
    seen = Overview(Inventory((allocation,)), **{"workload": Workload(), "keepers": keepers, **overview})
    prices = cast("Prices", SimpleNamespace(of=lambda item: price))
    return {fact.name: (fact.value, fact.source) for fact in facts_of(allocation, seen, prices, NOW)}


def of_node(item: Node, **more: Any) -> dict[str, tuple[str, str]]:
    return facts(Allocation((item,)), **more)


class TestNode:
    def test_what_its_provider_says(self) -> None:
        known = of_node(node(labels={"b": "2", "a": "1"}, metadata={"z": "secret", "y": ""}, spot=True))
        assert {name: value for name, (value, source) in known.items() if source == "provider"} == {
            "node": f"n1 in {ZONE} of p", "uid": "uid-0", "state": "its READY", "health": "not reported",
            "maintenance": "none announced", "type": "v3-8, spot", "runtime": "image-2",
            "created": "2026-01-01T00:00:00Z", "addresses": "10.0.0.1", "labels": "a=1, b=2",
            "metadata": "y, z",
        }  # fmt: skip
        assert known["owner"] == ("unknown", "metadata or label")

    def test_what_it_does_not_have_is_said(self) -> None:
        known = of_node(node(labels={}, metadata={}, addresses=()))
        assert [known[name][0] for name in ("labels", "metadata", "addresses")] == ["none"] * 3
        several = of_node(node(addresses=("10.0.0.1", "10.0.0.2"), metadata={"tpuctl-owner": "ada"}))
        assert (several["addresses"][0], several["owner"][0]) == ("10.0.0.1, 10.0.0.2", "ada")

    @pytest.mark.parametrize(
        ("accelerator", "size"),
        [
            ("v3-8", ("1 host, 4 chips, 8 cores", "catalogue")),
            ("v3-32", ("4 hosts, 16 chips, 32 cores", "catalogue")),
            ("v99-8", None),
        ],
    )
    def test_the_catalogue_knows_its_size(self, accelerator: str, size: tuple[str, str] | None) -> None:
        assert of_node(node(accelerator=accelerator)).get("size") == size

    def test_its_health_and_symptoms(self) -> None:
        ill = node(
            health="UNHEALTHY", health_description="a chip is hot",
            symptoms=(Symptom("2", "HDD_FULL", "99 %", "2026-01-01T01:00:00Z"), Symptom("3", "SLOW", "", "")),
        )  # fmt: skip
        known = of_node(ill)
        assert known["health"][0] == "UNHEALTHY (a chip is hot)"
        assert known["symptom of worker 2"][0] == "HDD_FULL 99 % 2026-01-01T01:00:00Z"
        assert known["symptom of worker 3"][0] == "SLOW"

    def test_maintenance_that_is_announced_or_unknown(self) -> None:
        announced = {"uid-0": Maintenance("SCHEDULED", "PENDING", "A", "B", False)}
        assert of_node(node(), maintenance=announced)["maintenance"][0] == "maintenance pending A to B"
        known = of_node(node(), maintenance_unknown="no answer")
        assert known["maintenance"][0] == "unknown: no answer"

    def test_its_newest_run(self) -> None:
        run = RunOnNode("r1", 2, "2026-01-01T01:00:00Z", "finished")
        known = of_node(node(), workload=Workload({"uid-0": run}))
        assert known["newest run"] == ("r1, attempt 2: finished, started 2026-01-01T01:00:00Z", "bucket")
        assert of_node(node())["newest run"] == ("none yet", "bucket")
        silent = of_node(node(), workload=Workload({"uid-0": run}, "no bucket"))
        assert silent["run"] == ("unknown: no bucket", "bucket")
        assert "newest run" not in silent


class TestLifetime:
    TTL = node(metadata={"tpuctl-ttl": "7200s", "tpuctl-idle": "600s"})

    def test_a_node_without_an_end_says_who_ends_it(self) -> None:
        known = of_node(node())
        assert known["ends by itself"] == ("never: until 'tpuctl down'", "no metadata")
        assert "keeper" not in known
        kept = of_node(node(labels={"managed-by": "terraform"}))
        assert kept["ends by itself"][0] == "never: Terraform keeps it"

    def test_one_that_ends_says_when_and_its_keeper_what_it_sees(self) -> None:
        known = of_node(self.TTL, note=Note(0, "01:59", active="01:30", activity="run r1, attempt 1"))
        assert known["ends by itself"] == ("2026-01-01T02:00:00Z or after 10m without use", "metadata")
        assert known["keeper"] == ("run r1, attempt 1; wrote 01:59", "keeper on worker 0")
        assert not known.keys() & {"keeper deletes it", "keeper cannot work"}

    @pytest.mark.parametrize(
        ("note", "words"),
        [
            (Note(0, "01:59", active="01:30"), "idle since 01:30; wrote 01:59"),
            (Note(0, "01:59"), "idle since its start; wrote 01:59"),
            (HostError("no answer"), "unknown: no answer"),
            (None, "has not written yet"),
        ],
    )
    def test_a_keeper_without_activity(self, note: Note | TpuctlError | None, words: str) -> None:
        assert of_node(self.TTL, note=note)["keeper"][0] == words

    def test_a_keeper_in_trouble_says_so(self) -> None:
        known = of_node(self.TTL, note=Note(0, "01:59", deleting="expired", error="no right"))
        assert known["keeper deletes it"][0] == "expired"
        assert known["keeper cannot work"][0] == "no right"

    def test_a_keeper_that_is_silent_may_not_end_it(self) -> None:
        known = of_node(self.TTL, note=Note(0, "2026-01-01T01:51:00Z"))
        assert known["keeper is silent"] == ("for 9 min: it may not end by itself", "keeper on worker 0")
        assert "keeper is silent" not in of_node(self.TTL, note=Note(0, "2026-01-01T01:58:00Z"))

    @pytest.mark.parametrize(
        ("metadata", "words"),
        [
            ({"tpuctl-ttl": "60s"}, "2026-01-01T00:01:00Z"),
            ({"tpuctl-idle": "1800s"}, "after 30m without use"),
        ],
    )
    def test_either_end_is_shown_and_has_a_keeper(self, metadata: dict[str, str], words: str) -> None:
        known = of_node(node(metadata=metadata))
        assert known["ends by itself"] == (words, "metadata")
        assert known["keeper"][0] == "has not written yet"


class TestPrice:
    def test_what_it_has_cost_so_far(self) -> None:
        known = of_node(node())
        source = "Cloud Billing Catalog 2026-01-01"
        assert known["price per hour"] == ("8.00 USD", source)
        assert known["so far, at most"] == ("16.00 USD", f"{source}, since it was created")

    def test_a_price_that_nobody_knows_says_why(self) -> None:
        known = of_node(node(), price=unknown("no list"))
        assert known["price per hour"] == ("unknown: no list", "no price list")
        assert "so far, at most" not in known

    def test_what_does_not_bill_has_none(self) -> None:
        assert "price per hour" not in of_node(node(state=NodeState.STOPPED))


class TestQueue:
    def test_a_request_that_waits(self) -> None:
        queued = queued_resource(
            reservation="r", valid_until="V", spot=True, metadata={"tpuctl-owner": "ada"}
        )
        assert facts(Allocation((), queued)) == {
            "queued resource": (f"q1 in {ZONE} of p", "provider"),
            "state of the request": ("its WAITING", "provider"),
            "why": ("waits for reservation r, until V at the latest", "provider"),
            "asks for": ("v3-8, spot", "provider"), "nodes": ("n1", "provider"),
            "requested": ("2026-01-01T00:00:00Z", "provider"), "reservation": ("r", "provider"),
            "valid until": ("V", "provider"), "owner": ("ada", "metadata or label"),
        }  # fmt: skip

    def test_one_that_failed_says_what_to_do(self) -> None:
        queued = queued_resource(
            QueueState.FAILED, initiator="SERVICE", error="no quota", error_hint="Ask for more.", labels={}
        )
        known = facts(Allocation((), queued))
        assert known["state of the request"][0] == "its FAILED, by SERVICE"
        assert known["why"][0] == "failed: no quota"
        assert known["what to do"] == ("Ask for more.", "docs/errors.md")
        assert known["owner"][0] == "unknown"
        assert not known.keys() & {"reservation", "valid until"}

    def test_its_nodes_follow(self) -> None:
        known = facts(Allocation((node(),), queued_resource(QueueState.ACTIVE)))
        assert next(iter(known)) == "queued resource"
        assert {"node", "newest run", "price per hour"} <= known.keys()


class TestFind:
    def refuse(self) -> Any:
        raise ConfigError("No bucket is configured.")

    def find(self, provider: MemoryProvider, name: str = "n1") -> Overview:
        return find_overview(provider, self.refuse, name, None, print)

    def test_only_what_the_name_means_is_seen(self) -> None:
        other = replace(node(name="n2"), id=replace(node().id, name="n2", uid="uid-2"))
        overview = self.find(MemoryProvider(node(), other))
        assert [item.name for item in overview.inventory.nodes] == ["n1"]

    def test_a_name_that_nobody_has(self) -> None:
        with pytest.raises(NotFoundError) as error:
            self.find(MemoryProvider(node()), "n2")
        assert error.value.message == "There is no TPU 'n2'."
        assert error.value.hint == "What happened to one that was there: tpuctl why n2"

    def test_a_name_that_a_silent_zone_may_have(self) -> None:
        provider = MemoryProvider(node())
        provider.unreachable = ("europe-west4-a",)
        with pytest.raises(DeadlineError, match="europe-west4-a"):
            self.find(provider, "n2")
        assert self.find(provider).inventory.unreachable == ("europe-west4-a",)


NODE = NodePaths.of(TPU.id)
THIS = node(id=NodeId("cloud-tpu", TPU.project, TPU.zone, TPU.name, TPU.uid))


def test_names_without_a_run_do_not_hide_the_one_that_works(bucket: Bucket) -> None:
    assert runs_on(bucket, NODE) == runs_on(bucket, NODE, most=1) == []
    run = write_run(bucket)
    write_status(run.last_attempt(), 0, RUNNING)
    for name in ("r1/1", "ghost/1", "ghost/2", "..", "-rf/1"):
        bucket.upload(f"{NODE.runs}{name}.json", [b""], "application/json")
    for most in (1, None):
        assert [(item.run, item.works) for item in runs_on(bucket, NODE, most=most)] == [("r1", True)]


def test_a_run_works_until_it_has_ended_or_nobody_knows() -> None:
    verdict = Verdict("r1", "lost", 1, CREATED, "because")
    for state, expected in (("running", True), ("starting", True), ("finished", False), ("unknown", False)):
        run = RunOnNode("r1", 1, CREATED, state)
        assert run.works is expected
        assert Workload({TPU.uid: run}).on(THIS) == (run if expected else None)
        assert not replace(run, verdict=verdict).works
    assert Workload().on(THIS) is None


class TestMany:
    """By names in the node's folder, newest first; a name may be anybody's."""

    def write(self, *names: str) -> Bucket:
        memory = MemoryBucket()
        bucket = cast("Bucket", memory)
        for name in names:
            if name.startswith("ghost"):
                memory.put(f"{NODE.runs}{name}/1.json", b"{}")
            else:
                write_run(bucket, name)
        return bucket

    @pytest.mark.parametrize(("ghosts", "is_found"), [(0, True), (9, True), (10, False)])
    def test_ten_names_are_looked_at_for_each_run_that_is_wanted(self, ghosts: int, is_found: bool) -> None:
        bucket = self.write("r1", *(f"ghost-{number}" for number in range(ghosts)))
        names = [run.run for run in runs_on(bucket, NODE, most=1)]
        assert names == ["r1"] * is_found

    def test_all_are_found_the_newest_first(self) -> None:
        bucket = self.write("r1", "ghost-1", "r2", "r3")
        assert [run.run for run in runs_on(bucket, NODE)] == ["r3", "r2", "r1"]
        assert [run.run for run in runs_on(bucket, NODE, most=2)] == ["r3", "r2"]

    def test_the_newest_of_each_node_is_its_work(self) -> None:
        seen = workload(self.write("r1", "r2"), [THIS, replace(THIS, id=replace(THIS.id, uid=""))])
        assert {uid: run.run for uid, run in seen.newest.items()} == {TPU.uid: "r2"}
        assert seen.unknown == ""

    def test_a_bucket_that_does_not_answer_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bucket = self.write("r1")

        def fail(*_: object, **options: object) -> None:
            raise DeadlineError("gs://b does not answer.")

        monkeypatch.setattr(bucket, "objects", fail)
        assert workload(bucket, [THIS]) == Workload({}, "gs://b does not answer.")

    def test_a_record_that_cannot_be_read_is_said_and_unknown(self) -> None:
        bucket, warnings = self.write("r1"), list[str]()
        cast("MemoryBucket", bucket).put("runs/r1/verdict.json", b"{")
        (run,) = runs_on(bucket, NODE, warnings.append)
        assert (run.state, run.works) == ("unknown", False)
        assert [line.split()[0] for line in warnings] == ["runs/r1/verdict.json"]

    def test_a_verdict_is_that_of_its_attempt(self) -> None:
        bucket = self.write("r1")
        verdict = Verdict("r1", "lost", 2, CREATED, "because")
        cast("MemoryBucket", bucket).put("runs/r1/verdict.json", encode(verdict))
        assert [(run.state, run.verdict) for run in runs_on(bucket, NODE)] == [("starting", None)]

    def test_one_that_was_started_again_elsewhere_has_ended_here(self) -> None:
        bucket = self.write("r1")
        memory = cast("MemoryBucket", bucket)
        memory.put("runs/r1/verdict.json", encode(Verdict("r1", "succeeded", 2, CREATED, "because")))
        memory.put("runs/r1/attempts/1/verdict.json", encode(Verdict("r1", "preempted", 1, CREATED, "gone")))
        assert [(run.state, run.works) for run in runs_on(bucket, NODE)] == [("preempted", False)]
