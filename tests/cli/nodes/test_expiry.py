"""`up --ttl`, `extend` and `reap`, by the simulator's clock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import durations
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.nodes import lifetime
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import Usage
from tpuctl.nodes import DeleteNode, Node, UpdateNode

Command = Callable[..., CommandResult]
HOUR = 3600


@pytest.fixture(autouse=True)
def no_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts without a keeper: what `reap` is the second net for."""
    monkeypatch.setattr(lifetime, "SCRIPT", "#!/bin/sh\n")


def only_node(cloud: Cloud) -> Node:
    (node,) = cloud.provider.list_nodes().nodes
    return node


def metadata(cloud: Cloud) -> dict[str, str]:
    return dict(only_node(cloud).metadata)


def names(cloud: Cloud) -> list[str]:
    return sorted(node.name for node in cloud.provider.list_nodes().nodes)


class TestStart:
    @pytest.mark.parametrize("command", [("start", "n1"), ("up", "v3-8", "--name", "n1")], ids=" ".join)
    def test_past_its_end_it_is_not_started_until_it_is_extended(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, command: tuple[str, ...]
    ) -> None:
        assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes").code == 0
        assert tpuctl("stop", "n1", "--yes").code == 0
        assert tpuctl("start", "n1", "--yes").code == 0, "its time is not over"
        assert tpuctl("stop", "n1", "--yes").code == 0
        simulator.simulator.clock.advance(2 * HOUR)
        refused = tpuctl(*command, "--yes")
        assert refused.code == 4, refused.err
        assert "'n1' is past its --ttl" in refused.err
        assert "tpuctl extend n1 " in refused.err
        assert only_node(cloud).provider_state == "STOPPED"
        assert tpuctl("extend", "n1", "2h").code == 0
        assert tpuctl(*command, "--yes").code == 0
        assert only_node(cloud).provider_state == "READY"


class TestUp:
    def test_metadata_and_labels_say_when_it_ends(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        created = tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h30m", "--idle", "30m", "--yes")
        assert created.code == 0, created.err
        assert "1h30m (--ttl), or 30m without use (--idle); then it deletes itself" in created.err
        node = only_node(cloud)
        marks = {"tpuctl-ttl": "5400s", "tpuctl-idle": "1800s"}
        assert marks.items() <= node.labels.items()
        assert {**marks, "tpuctl-bucket": "sim-project-tpuctl"}.items() <= node.metadata.items()

    def test_without_the_options_nothing_ends_and_no_script_runs(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        created = tpuctl("up", "v3-8", "--name", "n1", "--yes")
        assert "until 'tpuctl down'" in created.err
        assert not {"startup-script", "tpuctl-ttl", "tpuctl-idle"} & metadata(cloud).keys()

    @pytest.mark.parametrize(
        "options",
        [("--ttl", "59s"), ("--ttl", "367d"), ("--idle", "1s"), ("--ttl", "soon"), ("--ttl", "-1h")],
    )
    def test_an_end_that_no_keeper_could_bring_about_is_refused(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, options: tuple[str, ...]
    ) -> None:
        assert tpuctl("up", "v3-8", "--name", "n1", *options, "--yes").code == 2
        assert names(cloud) == []


class TestMaxCost:
    def test_a_budget_is_a_time_to_live_by_the_price(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        created = tpuctl("up", "v3-8", "--name", "n1", "--max-cost", "20", "--yes")
        assert created.code == 0, created.err
        price = Decimal(tpuctl("price", "v3-8", "--json").json["prices"][0]["on_demand"]["amount"])
        minutes = int(20 * 60 / price)
        assert 60 < minutes < 180
        assert metadata(cloud)["tpuctl-ttl"] == f"{minutes * 60}s"
        assert f"{durations.text(minutes * 60)} (--max-cost 20 at 9.77 USD per hour)" in created.err

    def test_several_slices_and_a_shorter_ttl_count(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        one = tpuctl("up", "v3-8", "--max-cost", "20", "--dry-run", "--json").json
        two = tpuctl("up", "v3-8", "--max-cost", "20", "--slices", "2", "--dry-run", "--json").json
        short = tpuctl("up", "v3-8", "--max-cost", "20", "--ttl", "5m", "--dry-run", "--json").json
        spot = tpuctl("up", "v3-8", "--max-cost", "20", "--spot", "--dry-run", "--json").json
        seconds = [
            int(re.findall(r"'tpuctl-ttl': '(\d+)s'", str(each))[0]) for each in (one, two, short, spot)
        ]
        assert 0 <= seconds[0] - 2 * seconds[1] <= 120
        assert seconds[2] == 300
        assert seconds[3] > 3 * seconds[0]

    def test_without_a_price_or_a_minute_nothing_is_created(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        for options, code, words in (
            (("--max-cost", "0"), 2, "--max-cost 0 pays for nothing"),
            (("--ttl", "0s"), 2, "--ttl 0s leaves no time"),
            (("--ttl", "999999999d"), 2, "is more than a century"),
            (("--max-cost", "0.01"), 2, "pays for less than a minute at 9.77 USD per hour"),
            (("--max-cost", "20", "--reserved"), 3, "reserved capacity costs what its contract says"),
            (("--max-cost", "much"), 2, "'much' is not an amount such as 20 or 7.50"),
            (("--max-cost", "-1"), 2, "is not an amount"),
        ):
            refused = tpuctl("up", "v3-8", "--name", "n1", *options, "--yes")
            assert (refused.code, words in refused.err) == (code, True), refused.err
        assert names(cloud) == []


class TestExtend:
    def test_it_moves_the_end_and_keeps_everything_else(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes")
        before = metadata(cloud)
        created = only_node(cloud).created_at
        extended = tpuctl("extend", "n1", "2h", "--json")
        assert extended.code == 0, extended.err
        after = metadata(cloud)
        assert after.pop("tpuctl-expires") == extended.json["expires"]
        assert after == before
        assert set(extended.json) == {"schema", "name", "zone", "expires"}
        assert (extended.json["name"], extended.json["zone"]) == ("n1", only_node(cloud).zone)
        again = tpuctl("extend", "n1", "30m", "--json").json["expires"]
        from tpuctl.host.keeper.records import moment

        assert moment(extended.json["expires"]) == pytest.approx(created + 10 * HOUR, abs=2)
        assert moment(again) == moment(extended.json["expires"]) + HOUR / 2
        said = tpuctl("extend", "n1", "30m")
        assert said.out == ""
        expires = metadata(cloud)["tpuctl-expires"]
        assert f"n1 deletes itself {expires}; 30m more cost 4.88 USD." in said.err

    def test_what_is_past_its_end_is_extended_from_now_on(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        simulator.simulator.clock.advance(5 * HOUR)
        extended = tpuctl("extend", "n1", "1h", "--json")
        from tpuctl.host.keeper.records import moment

        assert moment(extended.json["expires"]) == pytest.approx(
            simulator.simulator.clock.now() + HOUR, abs=60
        )

    def test_a_dry_run_shows_what_is_then_sent(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes")
        before = metadata(cloud)
        (request,) = tpuctl("extend", "n1", "2h", "--dry-run", "--json").json["requests"]
        assert metadata(cloud) == before
        tpuctl("extend", "n1", "2h")
        assert request["method"] == "PATCH"
        assert request["body"]["metadata"] == metadata(cloud)

    def test_a_key_that_another_user_adds_at_the_same_time_stays(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tpuctl.cloud.tpu.client import CloudTpu

        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes")
        begin, others = CloudTpu.begin, [{"theirs": "1"}]

        def overtaken(self: CloudTpu, change: UpdateNode) -> object:
            """Another client's update, made of what it read before ours, arrives just after ours."""
            operation = begin(self, change)
            if others:
                operation.wait("to be updated", 30)
                stale = {**change.node.metadata, **others.pop()}
                return begin(self, UpdateNode(change.node, metadata=stale))
            return operation

        monkeypatch.setattr(CloudTpu, "begin", overtaken)
        extended = tpuctl("extend", "n1", "2h", "--json")
        assert extended.code == 0, extended.err
        assert metadata(cloud)["tpuctl-expires"] == extended.json["expires"]
        assert metadata(cloud)["theirs"] == "1"

    def test_what_has_no_end_or_does_not_exist_is_named(
        self, simulator: RunningSimulator, tpuctl: Command
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--yes")
        assert "has no --ttl" in tpuctl("extend", "n1", "2h").err
        assert tpuctl("extend", "n1", "2h").code == 4
        assert "Did you mean n1?" in tpuctl("extend", "n2", "2h").err
        assert tpuctl("extend", "n1", "soon").code == 2

    def test_a_silent_zone_may_hold_it(self, simulator: RunningSimulator, tpuctl: Command) -> None:
        simulator.faults.add("unreachable", zone="europe-west4-a")
        assert tpuctl("extend", "n1", "2h").code == 9

    def test_an_end_in_more_than_a_year_is_refused(
        self, simulator: RunningSimulator, tpuctl: Command
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes")
        assert tpuctl("extend", "n1", "366d").code == 2


class TestReap:
    def test_what_has_expired_is_deleted_and_nothing_else(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        for name, options in {"old": ("--ttl", "1h"), "young": ("--ttl", "9h"), "endless": ()}.items():
            assert tpuctl("up", "v3-8", "--name", name, *options, "--yes").code == 0
        assert "nothing to reap" in tpuctl("reap", "--yes").err
        simulator.simulator.clock.advance(2 * HOUR)
        reaped = tpuctl("reap", "--yes")
        assert reaped.code == 0
        assert "expired" in reaped.err
        assert names(cloud) == ["endless", "young"]

    def test_it_asks_and_does_nothing_without_an_answer(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        simulator.simulator.clock.advance(2 * HOUR)
        asked = tpuctl("reap")
        assert (asked.code, {"RUN", "none"} <= set(asked.err.split())) == (10, True), asked.err
        (request,) = tpuctl("reap", "--dry-run", "--json").json["requests"]
        assert request["method"] == "DELETE"
        assert names(cloud) == ["n1"]

    def test_the_clock_of_this_machine_decides_nothing(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from datetime import UTC, datetime

        from tpuctl import clock

        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        monkeypatch.setattr(clock, "now", lambda: datetime(2150, 1, 1, tzinfo=UTC))
        assert tpuctl("reap", "--yes").code == 0
        assert names(cloud) == ["n1"]

    def test_an_extension_while_the_question_waits_is_honoured(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tpuctl.cli.nodes import changes
        from tpuctl.flows.nodes import lifetime

        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        simulator.simulator.clock.advance(2 * HOUR)

        def extended_meanwhile(question: str, *, yes: bool) -> None:
            provider = cloud.provider
            lifetime.extend(
                provider, lifetime.plan_extension(provider, "n1", HOUR, cloud.server_time()), lambda _: None
            )

        monkeypatch.setattr(changes, "confirm", extended_meanwhile)
        assert tpuctl("reap").code == 0
        assert names(cloud) == ["n1"]

    def test_what_others_own_stays_without_all_users(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TPUCTL_OWNER", "grace@example.com")
        tpuctl("up", "v3-8", "--name", "hers", "--ttl", "1h", "--yes")
        monkeypatch.setenv("TPUCTL_OWNER", "ada@example.com")
        simulator.simulator.clock.advance(2 * HOUR)
        assert tpuctl("reap", "--yes").code == 0
        assert names(cloud) == ["hers"]
        assert tpuctl("reap", "--yes", "--all-users").code == 0
        assert names(cloud) == []

    def test_what_tpuctl_did_not_create_stays(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        node = only_node(cloud)
        labels = {name: value for name, value in node.labels.items() if name != "managed-by"}
        cloud.provider.begin(UpdateNode(node, labels=labels)).wait("to be updated", 30)
        simulator.simulator.clock.advance(2 * HOUR)
        assert tpuctl("reap", "--yes", "--all-users", "--without-run", "1m").code == 0
        assert names(cloud) == ["n1"]

    def test_a_preempted_one_is_deleted(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--spot", "--yes")
        simulator.call(simulator.world.preempt(simulator.world.nodes.all()[0].name))
        reaped = tpuctl("reap", "--yes")
        assert "n1 is PREEMPTED" in reaped.err
        assert names(cloud) == []

    def test_silent_zones_are_named_after_the_rest_is_done(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        simulator.simulator.clock.advance(2 * HOUR)
        simulator.faults.add("unreachable", zone="us-central1-a")
        reaped = tpuctl("reap", "--yes")
        assert reaped.code == 9
        assert "us-central1-a" in reaped.err
        assert names(cloud) == []

    def test_metadata_that_is_no_time_expires_nothing(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes")
        node = only_node(cloud)
        broken = {**node.metadata, "tpuctl-expires": "yesterday"}
        cloud.provider.begin(UpdateNode(node, metadata=broken)).wait("to be updated", 30)
        simulator.simulator.clock.advance(2 * HOUR)
        assert tpuctl("reap", "--yes").code == 0
        assert names(cloud) == ["n1"]


class TestWithoutRun:
    @pytest.fixture
    def job(self, tmp_path, monkeypatch: pytest.MonkeyPatch) -> str:
        script = tmp_path / "work" / "job.py"
        script.write_text("import time\nprint('started', flush=True)\ntime.sleep(600)\n")
        return str(script)

    def test_an_idle_node_is_deleted_once_it_is_old_enough(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--yes")
        assert tpuctl("reap", "--without-run", "1h", "--yes").code == 0
        assert names(cloud) == ["n1"]
        simulator.simulator.clock.advance(2 * HOUR)
        assert tpuctl("reap", "--yes").code == 0
        assert names(cloud) == ["n1"]
        reaped = tpuctl("reap", "--without-run", "1h", "--yes")
        assert "owned by no run" in reaped.err
        assert names(cloud) == []

    def test_one_that_was_started_a_moment_ago_is_as_one_that_is_young(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
    ) -> None:
        """Whoever pauses a TPU over night lost it, with its disk, at the first cron after its start."""
        for command in ("up v3-8 --name n1", "stop n1"):
            assert tpuctl(*command.split(), "--yes").code == 0
        simulator.simulator.clock.advance(2 * HOUR)
        assert tpuctl("start", "n1", "--yes").code == 0
        assert tpuctl("reap", "--without-run", "1h", "--yes").code == 0
        assert names(cloud) == ["n1"]
        simulator.simulator.clock.advance(2 * HOUR)
        assert tpuctl("reap", "--without-run", "1h", "--yes").code == 0
        assert names(cloud) == []

    def test_a_node_with_a_run_that_has_not_ended_stays(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, bucket: Bucket, job: str
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--yes")
        submitted = tpuctl("submit", job)
        assert submitted.code == 0, submitted.err
        node = only_node(cloud)
        usage = Usage(bucket, Witnesses(cloud.provider), cloud.server_time(), timedelta(), lambda _: None)
        assert usage.used([node]) == {node.id.uid}
        assert usage.used([replace(node, id=replace(node.id, uid="7"))]) == set()
        assert tpuctl("reap", "--without-run", "0s", "--yes").code == 0
        assert names(cloud) == ["n1"]

    @pytest.mark.parametrize("command", [("reap",), ("down", "n1"), ("up", "v3-8", "--name", "n1", "--spot")])
    def test_the_run_of_a_preempted_one_was_preempted_although_nobody_had_looked(
        self, simulator: RunningSimulator, tpuctl: Command, bucket: Bucket, job: str,
        monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...],
    ) -> None:  # fmt: skip
        """It was told as stopped, since its node was deleted, and never started again."""
        monkeypatch.setattr(decision, "CHECK_NODE_AFTER", 0.5)
        assert tpuctl("up", "v3-8", "--name", "n1", "--spot", "--yes").code == 0
        submitted = tpuctl("submit", job, "--name", "r1", "--tpu", "n1")
        assert submitted.code == 0, submitted.err
        simulator.call(simulator.world.preempt(simulator.world.nodes.all()[0].name))
        deleted = tpuctl(*command, "--yes")
        assert deleted.code == 0, deleted.err
        ended = tpuctl("wait", "r1")
        assert ended.code == 7, ended.err
        assert "was preempted" in tpuctl("why", "n1").out

    def test_a_node_with_a_run_in_another_bucket_stays(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, job: str
    ) -> None:
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
        submitted = tpuctl("submit", job)
        assert submitted.code == 0, submitted.err
        simulator.gcs.store.ensure_bucket("other-bucket", "sim-project", location="EU")
        simulator.simulator.clock.advance(2 * HOUR)
        reaped = tpuctl("reap", "--without-run", "1m", "--yes", "--bucket", "other-bucket")
        assert reaped.code == 0, reaped.err
        assert "n1 is left alone: its runs are recorded in gs://sim-project-tpuctl" in reaped.err
        assert names(cloud) == ["n1"]

    def test_a_run_that_cannot_be_read_stops_it(
        self, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud, bucket: Bucket, job: str
    ) -> None:
        tpuctl("up", "v3-8", "--name", "n1", "--yes")
        bucket.create(NodePaths.of(only_node(cloud).id).run("odd", 1), b"{}", "application/json")
        bucket.create("runs/odd/run.json", b"{}", "application/json")
        bucket.create("runs/odd/attempts/1/attempt.json", json.dumps({}).encode(), "application/json")
        simulator.simulator.clock.advance(2 * HOUR)
        reaped = tpuctl("reap", "--without-run", "1h", "--yes")
        assert reaped.code == 4
        assert "nobody knows whether its TPU is in use" in reaped.err
        assert names(cloud) == ["n1"]
        cloud.provider.begin(DeleteNode(only_node(cloud).id))
