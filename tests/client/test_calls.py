"""Tests each call of the client against the simulator: what it returns, and what it leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import tpuctl
from tests.running_simulator import RunningSimulator
from tpuctl import Client
from tpuctl.errors import NotFoundError, StateError, UsageError

HOUR = timedelta(hours=1)


class TestNodes:
    def test_a_plan_says_what_up_would_do_and_does_nothing(self, client: Client) -> None:
        plan = client.plan_up("v3-8", name="n1", spot=True, ttl=8 * HOUR, labels={"team": "vision"})
        assert (plan.name, plan.accelerator, plan.hosts, plan.chips) == ("n1", "v3-8", 1, 4)
        assert (plan.exists, plan.zones) == (False, ("europe-west4-a",))
        assert plan.price_per_hour.amount
        assert plan.price_per_hour.currency == "USD"
        (request,) = plan.requests
        assert request.method == "POST"
        assert client.nodes() == ()
        node = plan.create()
        info = node.info
        assert (info.spot, info.labels["team"], info.state, info.bills) == (True, "vision", "READY", True)
        assert info.expires
        assert info.created
        assert info.expires - info.created == 8 * HOUR
        assert client.plan_up("v3-8", name="n1", spot=True).exists

    def test_node_has_what_is_known_of_it(self, client: Client) -> None:
        node = client.up("v3-8", name="n1", ttl=HOUR)
        (info,) = client.nodes()
        assert replace(info, cost_so_far=None) == replace(node.info, cost_so_far=None)
        assert isinstance(info.price_per_hour.amount, Decimal)
        assert (info.hosts, info.run, info.queued_resource, info.notes) == (1, "", "", ())
        facts = {fact.name: fact.value for fact in node.facts}
        assert (facts["state"], facts["type"]) == ("READY", "v3-8")
        end = node.extend(2 * HOUR)
        assert end.tzinfo == UTC
        assert node.info.expires == end

    def test_a_node_stops_and_starts(self, client: Client) -> None:
        node = client.up("v3-8", name="n1")
        assert node.stop().state == "STOPPED"
        assert not node.info.bills
        assert node.start().state == "READY"

    def test_what_was_requested_is_waited_for(self, client: Client) -> None:
        node = client.up("v3-8", name="n1", detach=True, queued=True)
        assert node.wait(timeout=HOUR).state in ("READY", "ACTIVE")
        assert client.node("n1").state == "READY"

    def test_down_deletes_what_is_named_or_the_only_one_or_all(self, client: Client) -> None:
        for name in ("n1", "n2", "n3"):
            client.up("v3-8", name=name)
        assert client.down("n2") == ("n2",)
        with pytest.raises(StateError, match=r"You have 2 TPUs: n1, n3\."):
            client.down()
        with pytest.raises(UsageError, match="exclude each other"):
            client.down("n1", all=True)
        plan = client.plan_down(all=True)
        assert plan.names == ("n1", "n3")
        assert [request.method for request in plan.requests] == ["DELETE", "DELETE"]
        assert len(client.nodes()) == 2
        assert plan.delete() == ("n1", "n3")
        client.up("v3-8", name="n4")
        assert client.down() == ("n4",)
        assert client.nodes() == ()

    def test_nodes_of_others_are_listed_on_request(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.up("v3-8", name="n1")
        monkeypatch.setenv("TPUCTL_OWNER", "eve@example.com")
        with Client() as other:
            assert other.nodes() == ()
            assert [node.name for node in other.nodes(all_users=True)] == ["n1"]


class TestHosts:
    def test_a_command_has_one_result_a_worker(self, client: Client) -> None:
        node = client.up("v3-32", name="pod", framework="jax")
        pieces = list[tuple[int, str, bytes]]()
        result = node.exec("echo out; echo err >&2; exit 3", output=lambda *piece: pieces.append(piece))
        assert [worker.worker for worker in result.workers] == [0, 1, 2, 3]
        assert {(each.stdout, each.stderr, each.exit_code) for each in result.workers} == {
            ("out\n", "err\n", 3)
        }
        assert result.exit_code == 3
        assert (2, "stdout", b"out\n") in pieces
        one = client.exec("pod", ["printf", "%s", "a b"], workers=[1])
        assert [(each.worker, each.stdout) for each in one.workers] == [(1, "a b")]
        with pytest.raises(NotFoundError, match="no worker 7"):
            node.exec("true", workers=[7])

    def test_files_go_to_every_host_and_come_from_each(self, client: Client) -> None:
        client.up("v3-32", name="pod", framework="jax")
        Path("data").write_text("content")
        sent = client.cp("data", "pod:copy")
        assert [(each.worker, each.files, each.bytes, each.kept) for each in sent] == [
            (worker, 1, 7, 0) for worker in range(4)
        ]
        assert [each.kept for each in client.cp("data", "pod:copy", workers=[0, 2])] == [1, 1]
        client.cp("pod@3:copy", "back")
        assert Path("back").read_text() == "content"


class TestDatasets:
    def test_a_dataset_is_uploaded_listed_read_verified_and_removed(
        self, client: Client, table: Path
    ) -> None:
        reports = list[tpuctl.Progress]()
        dataset = client.upload("rows", table, splits={"train": 0.75, "test": 0.25}, progress=reports.append)
        info = dataset.info
        assert [(split.name, split.records) for split in info.splits] == [("train", 3000), ("test", 1000)]
        assert (info.fields, info.version, info.skipped) == (("x", "y"), "1.0.0", 0)
        assert client.datasets() == (info,)
        assert client.dataset("rows").info == client.dataset("rows/1.0.0").info == info
        (example,) = dataset.head(1, split="test")
        assert example.split == "test"
        assert set(example.values) == {"x", "y"}
        dataset.verify(deep=True)
        copy = dataset.pull()
        assert copy.folder == Path("rows")
        assert dataset.pull().kept == copy.files
        last = reports[-1]
        assert (last.done, last.total, last.unit) == (4000, 4000, "records")
        dataset.remove()
        assert client.datasets() == ()

    def test_the_same_upload_gives_the_same_dataset(self, client: Client, table: Path) -> None:
        first = client.upload("rows", table, seed=3)
        assert client.upload("rows", table, seed=3).info == first.info
        assert client.upload("same", table, seed=3).head(9) == first.head(9)
        assert client.upload("other", table, seed=4).head(9) != first.head(9)

    def test_options_that_contradict_each_other_are_refused(self, client: Client, table: Path) -> None:
        with pytest.raises(tpuctl.errors.UsageError, match="both set the number of hosts"):
            client.upload("rows", table, accelerator="v3-32", hosts=2)
        with pytest.raises(tpuctl.errors.UsageError, match="--length needs --tokens"):
            client.upload("rows", table, length=12)


class TestRuns:
    def test_a_plan_says_what_would_run_where(self, client: Client, script: Path) -> None:
        client.up("v3-8", name="n1")
        plan = client.plan_submit(script, name="r1")
        assert (plan.name, plan.node, plan.workers, plan.dataset) == ("r1", "n1", (0,), "")
        assert [request.method for request in plan.requests][-1] == "SSH"
        assert client.runs() == ()
        assert plan.start().wait().succeeded

    def test_a_run_has_what_is_known_of_it(self, client: Client, script: Path) -> None:
        client.up("v3-8", name="n1")
        run = client.submit(script, name="r1", environment={"CODE": "1"})
        run.wait()
        info = run.info
        assert (info.name, info.state, info.node, info.exit_code) == ("r1", "failed", "n1", 1)
        assert info == client.runs()[0]
        assert info.ended
        assert info.ended >= info.submitted
        assert abs(datetime.now(UTC) - info.submitted) < HOUR
        end = run.end
        assert end
        assert (end.outcome, end.attempt) == ("failed", 1)
        assert {fact.name: fact.value for fact in run.facts}["state"] == "failed"
        (group,) = [group for group in client.cost().groups if group.key == "r1"]
        assert (group.attempts, group.cost.currency) == (1, "USD")
        assert client.runs(states=["succeeded"]) == ()
        assert client.runs(limit=1)[0].name == "r1"

    def test_tags_and_notes_stay_until_a_run_is_removed(self, client: Client, script: Path) -> None:
        client.up("v3-8", name="n1")
        run = client.submit(script, ["--wait"], name="r1")
        with pytest.raises(StateError):
            run.remove()
        run.cancel(grace=1)
        assert run.tag("keep", "team=vision") == {"keep": "", "team": "vision"}
        assert run.tag("team-") == {"keep": ""}
        run.note("as in the paper")
        assert ("note", "as in the paper") in [(fact.name, fact.value) for fact in run.facts]
        assert client.runs(tags=["keep"])[0].tags == {"keep": ""}
        run.remove()
        assert client.runs() == ()
        with pytest.raises(NotFoundError):
            run.state  # noqa: B018  read for its error

    def test_a_run_is_repeated_from_its_record(self, client: Client, script: Path) -> None:
        client.up("v3-8", name="n1")
        first = client.submit(script, ["--epochs", "1"], name="r1")
        first.wait()
        script.unlink()
        second = first.resubmit(["--epochs", "2"], name="r2")
        assert second.wait().succeeded
        facts = {fact.name: fact.value for fact in second.facts}
        assert (facts["repeats"], facts["command"]) == ("r1", "train.py --epochs 2")

    def test_lines_have_their_worker_and_time(self, client: Client, script: Path) -> None:
        client.up("v3-32", name="pod", framework="jax")
        script.write_text('# /// script\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n' + script.read_text())
        run = client.submit(script, name="r1")
        lines = list(run.logs(follow=True))
        assert sorted(line.worker for line in lines) == [0, 1, 2, 3]
        assert all(line.time and line.time.tzinfo for line in lines)
        assert [line.worker for line in run.logs(workers=[2])] == [2]
        assert list(run.logs(text="nothing has this")) == []
        assert len(list(run.logs(tail=1))) == 1

    def test_a_preempted_run_is_started_again_by_watch(
        self, client: Client, simulator: RunningSimulator, script: Path
    ) -> None:
        client.up("v3-8", name="n1", spot=True)
        run = client.submit(script, ["--wait"], name="r1", restarts=1)
        next(run.logs(follow=True))
        client._context.cloud.preempt(client._context.cloud.provider.list_nodes().nodes[0].id, 0.0)
        end = run.wait()
        assert (end.outcome, end.is_restarted) == ("preempted", True)
        actions = list[str]()
        for event in client.watch("r1"):
            actions.append(event.action)
            if event.action == "restarted":
                break
        assert actions[-1] == "restarted"
        assert [attempt.number for attempt in run.attempts] == [1, 2]
        run.cancel(grace=1)
