"""tag, note, rm and runs gc as their user sees them, and the fields of runs in JSON."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runs.test_queue import await_states
from tests.flows.runs.records import write_run, write_status
from tests.flows.runs.upkeep.records import rest_of, write_ended_run
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.runs import upkeep
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep import removal
from tpuctl.flows.runs.upkeep.collection import Collection, Rule
from tpuctl.host.worker.records import FINISHED, RUNNING
from tpuctl.nodes import RESTART_LABEL, RUN_LABEL, UpdateNode
from tpuctl.upkeep import REMOVAL_TYPE

Command = Callable[..., CommandResult]


@pytest.fixture
def ended(bucket: Bucket) -> Bucket:
    """Two runs that have ended."""
    for name in ("r1", "r2"):
        write_ended_run(bucket, name)
    return bucket


def test_tags_and_notes_are_shown_and_select(tpuctl: Command, ended: Bucket) -> None:
    assert "TAGS" not in tpuctl("runs").out
    tagged = tpuctl("tag", "r1", "keep", "paper=figure 3")
    assert tagged.out.splitlines() == ["keep", "paper=figure 3"]
    assert tagged.err.splitlines()[-1] == "Next: tpuctl describe r1"
    assert tpuctl("note", "r1", "the", "rate was", "too high").out.endswith("the rate was too high\n")
    listed = tpuctl("runs").out
    assert "TAGS" in listed
    assert "keep, paper=figure 3" in listed
    table = tpuctl("runs", "--columns", "tags,note").out.splitlines()
    assert table[0].split() == ["RUN", "TAGS", "NOTE"]
    assert table[1].endswith("the rate was too high")
    shown = tpuctl("runs", "--tag", "paper", "--json").json["runs"]
    assert [(run["run"], run["tags"]) for run in shown] == [("r1", {"keep": "", "paper": "figure 3"})]
    assert shown[0]["notes"][0]["text"] == "the rate was too high"
    assert tpuctl("runs", "--tag", "paper=other", "--json").json["runs"] == []
    described = tpuctl("describe", "r1").out
    assert "keep, paper=figure 3" in described
    assert "the rate was too high" in described
    assert tpuctl("tag", "r1", "paper-", "--json").json["tags"] == {"keep": ""}
    assert "Run 'r2' has no tags." in tpuctl("tag", "r2").err
    assert tpuctl("tag", "r2", "x=1", "--dry-run", "--json").json["requests"][0]["method"] == "POST"
    assert tpuctl("tag", "r2", "--json").json["tags"] == {}


HOSTILE = ["../datasets/pets", "datasets/pets", "r1/outputs", "", ".", "r1/../../x", "*", "r1\n", "R1"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leads_out_of_the_runs(tpuctl: Command, ended: Bucket, name: str) -> None:
    ended.upload("datasets/pets/1.0.0/manifest.json", [b"{}"], "application/json")
    before = ended.objects("")
    for command in (("rm", name, "--yes"), ("tag", name, "keep"), ("note", name, "x")):
        result = tpuctl(*command)
        assert (result.code, "cannot name a run" in result.err) == (2, True), command
    assert ended.objects("") == before


def test_a_removal_shows_a_table_and_asks(tpuctl: Command, ended: Bucket) -> None:
    refused = tpuctl("rm", "r1", "r2")
    assert (refused.code, "Pass --yes" in refused.err) == (10, True)
    header, first, _ = refused.err.splitlines()[1:4]
    assert header.split() == ["RUN", "STATE", "SUBMITTER", "AGE", "OBJECTS", "SIZE", "COST", "TAGS"]
    assert first.split()[:3] == ["r1", "succeeded", "ada@laptop"]
    before = ended.objects("runs/r1/")
    planned = tpuctl("rm", "r1", "--dry-run", "--json").json["requests"]
    assert {request["method"] for request in planned} == {"POST", "DELETE"}
    assert rest_of(ended, "r1")
    removed = tpuctl("rm", "r1", "--yes", "--json")
    assert removed.code == 0, removed.err
    (run,) = removed.json["removed"]
    assert (run["run"], run["state"], run["objects"]) == ("r1", "succeeded", len(before))
    assert removed.json["bucket_keeps"]["versions"] is False
    assert rest_of(ended, "r1") == []
    assert "r1" not in tpuctl("runs").out
    again = tpuctl("rm", "r1", "--yes")
    assert (again.code, "There is no run 'r1'" in again.err) == (4, True)


def test_the_name_of_a_removed_run_is_free_also_on_its_tpu(tpuctl: Command, node: str) -> None:
    for text in ("first", "second"):
        Path("job.py").write_text(f"print('the {text}')")
        ran = tpuctl("submit", "job.py", "--name", "again", "--attach")
        assert (ran.code, ran.out.splitlines()[-1]) == (0, f"the {text}"), ran.err
        assert tpuctl("logs", "again").out.splitlines() == [f"the {text}"]
        assert tpuctl("rm", "again", "--yes").code == 0


def test_one_that_goes_on_keeps_the_others_too(tpuctl: Command, ended: Bucket) -> None:
    run, before = write_run(ended, "r3"), rest_of(ended, "r1")
    write_status(run.attempt(1), 0, "running")
    refused = tpuctl("rm", "r1", "r3", "--yes", "--json")
    assert refused.code == 4
    assert refused.json["error"]["run"] == "r3"
    assert rest_of(ended, "r1") == before


def test_what_the_bucket_keeps_is_said(tpuctl: Command, ended: Bucket, cloud: Cloud) -> None:
    stored = ended._client.bucket(ended.name)  # as its owner sets it
    stored.reload()
    stored.versioning_enabled = True
    stored.soft_delete_policy.retention_duration_seconds = 7 * 86400
    stored.patch()
    said = tpuctl("rm", "r1", "--yes").err
    assert "keeps older versions of objects, and they bill until they are deleted." in said
    assert "keeps deleted objects for 7d, and they bill so long." in said


def test_old_runs_are_collected(tpuctl: Command, ended: Bucket) -> None:
    tpuctl("tag", "r1", "keep")
    kept = tpuctl("runs", "gc", "--keep", "0", "--all-users", "--older-than", "1h", "--yes")
    assert "There is no old run to remove." in kept.err
    assert "There is no old run to remove." in tpuctl("runs", "gc", "--keep", "0", "--yes").err, "ada's"
    planned = tpuctl("runs", "gc", "--keep", "0", "--all-users", "--dry-run", "--json").json["requests"]
    assert all("r2" in request["url"] for request in planned if request["method"] == "DELETE")
    removed = tpuctl("runs", "gc", "--keep", "0", "--all-users", "--yes")
    assert removed.code == 0, removed.err
    assert removed.out.startswith("Removed r2: ")
    assert "Kept by their tag: r1." in removed.err
    assert [run["run"] for run in tpuctl("runs", "--json").json["runs"]] == ["r1"]


@pytest.mark.slow
def test_a_tpu_that_was_made_for_a_run_is_named_and_keeps_the_record_from_gc(
    tpuctl: Command, ended: Bucket, node: str, cloud: Cloud
) -> None:
    (made,) = cloud.provider.list_nodes().nodes
    for label, run, other in ((RUN_LABEL, "r1", "r2"), (RESTART_LABEL, "r2", "r1")):
        change = UpdateNode(made, labels={**made.labels, label: run})
        cloud.provider.begin(change).wait("to be labelled", 60)
        kept = tpuctl("runs", "gc", "--keep", "0", "--all-users", "--yes", "--json")
        bills = f"Run '{run}': n1 in {made.zone} was made for it, and goes on billing until 'tpuctl down n1'."
        assert f"Kept: {bills}" in kept.err
        assert [removed["run"] for removed in kept.json["removed"]] == [other]
        write_ended_run(ended, other)
    assert f"Warning: {bills}" in tpuctl("rm", "r2", "--yes").err
    assert tpuctl("down", node, "--yes").code == 0
    assert "Warning" not in tpuctl("rm", "r1", "--yes").err


def test_an_option_of_the_list_is_not_taken_for_one_of_gc(tpuctl: Command, ended: Bucket) -> None:
    refused = tpuctl("runs", "--limit", "3", "gc", "--yes")
    assert refused.code == 2
    assert "--limit is an option of the list" in refused.err
    assert "There is no command 'x' in 'tpuctl runs'" in tpuctl("runs", "x").err


def test_a_command_that_is_killed_is_completed_by_the_same_one(tpuctl: Command, ended: Bucket) -> None:
    for number in range(300):
        ended.upload(f"runs/r1/outputs/{number}", [b"x"], "text/plain")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with commands.start("rm", "r1", "--yes", **silent) as process:
        while process.poll() is None:
            item = ended.stat("runs/r1/run.json")
            if item is None or item.content_type == REMOVAL_TYPE:
                process.send_signal(signal.SIGKILL)
                break
    assert "r1" not in tpuctl("runs").out
    if rest_of(ended, "r1"):
        assert "being removed" in tpuctl("logs", "r1").err
        assert "Run 'r1' is being removed" in tpuctl("runs").err
        assert tpuctl("rm", "r1", "--yes").code == 0
    assert rest_of(ended, "r1") == []


DAY = 86_400


@pytest.fixture
def collected(
    tpuctl: Command, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[CommandResult, Rule, bool]]:
    """The command where the flow answers with given runs that stay: those of 20 runs would take seconds."""

    def call(*options: str, tagged: int = 0, refused: int = 0) -> tuple[CommandResult, Rule, bool]:
        asked: list[tuple[Rule, bool]] = []

        def plan(*arguments: object, is_rehearsal: bool) -> Collection:
            (rule,) = (argument for argument in arguments if isinstance(argument, Rule))
            asked.append((rule, is_rehearsal))
            errors = [StateError(f"Run 'r{number}' goes on.") for number in range(refused)]
            return Collection((), [f"t{number}" for number in range(tagged)], errors)

        monkeypatch.setattr(upkeep, "plan_collection", plan)
        result = tpuctl("runs", "gc", *options)
        ((rule, is_rehearsal),) = asked
        return result, rule, is_rehearsal

    return call


def test_the_newest_twenty_of_the_user_are_kept_unless_options_say_otherwise(
    collected: Callable[..., tuple[CommandResult, Rule, bool]],
) -> None:
    _, rule, is_rehearsal = collected()
    assert (rule.keep, rule.age, bool(rule.owner), is_rehearsal) == (20, 0.0, True, False)
    _, rule, is_rehearsal = collected("--keep", "0", "--older-than", "30d", "--all-users", "--dry-run")
    assert (rule, is_rehearsal) == (Rule(0, "", 30 * DAY), True)


@pytest.mark.parametrize(("refused", "more"), [(1, ""), (5, ""), (6, "1"), (9, "4")])
def test_five_reasons_are_shown_and_others_counted(
    collected: Callable[..., tuple[CommandResult, Rule, bool]], refused: int, more: str
) -> None:
    result, _, _ = collected("--yes", tagged=2, refused=refused)
    kept = [line for line in result.err.splitlines() if line.startswith("Kept")]
    reasons = [f"Kept: Run 'r{number}' goes on." for number in range(min(refused, 5))]
    rest = [f"Kept: {more} more that go on, or may."] if more else []
    assert kept == ["Kept by their tag: t0, t1.", *reasons, *rest]
    assert result.out == ""


def test_where_no_run_is_old_that_is_said_on_stderr(
    collected: Callable[..., tuple[CommandResult, Rule, bool]],
) -> None:
    result, _, _ = collected("--yes")
    assert result.err.splitlines()[-2:] == ["There is no old run to remove.", "Next: tpuctl runs"]
    assert "Kept" not in result.err
    rehearsal, _, _ = collected("--dry-run", tagged=1)
    assert (rehearsal.out, "Kept" in rehearsal.err) == ("", False)


def test_fewer_than_no_run_cannot_be_kept(tpuctl: Command) -> None:
    assert tpuctl("runs", "gc", "--keep", "-1").code == 2


def test_a_run_that_another_job_calls_ended_stays_while_its_host_has_it_at_work(
    tpuctl: Command, node: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.py").write_text(
        '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
        "import time\ntime.sleep(600)\n"
    )
    assert tpuctl("submit", "job.py", "--name", "r1", "--tpu", node).code == 0
    await_states(bucket, "r1", RUNNING)
    paths = StoredRun(bucket, "r1").paths
    forged = json.loads(bucket.read(paths.status(1, 0), 1 << 20)) | {"state": FINISHED, "exit_code": 0}
    bucket.upload(paths.status(1, 0), [json.dumps(forged).encode()], "application/json")
    # the worker writes its own status again, before or after these commands have read that of the other job
    monkeypatch.setattr(removal, "_check_workers", lambda *_: None)
    tpuctl("runs")
    said = f"Run 'r1' is still running on {node}, worker 0."
    refused = tpuctl("rm", "r1", "--yes")
    assert (refused.code, said in refused.err) == (4, True), refused.err
    assert said in tpuctl("runs", "gc", "--keep", "0", "--yes").err
    assert bucket.stat(paths.record)


PRICE = "amount currency source as_of reason"
RUN = (
    "run created submitted ended duration_seconds accelerator slices node zone dataset state exit_code "
    "reason cost submitter attempt steps_lost no_output_seconds tags notes"
)
ENDED = "2026-01-01T12:00:00Z"


@pytest.fixture
def ended_runs(bucket: Bucket) -> Bucket:
    """Two runs that have ended; the bucket has their code no more."""
    for name in ("r1", "r2"):
        write_ended_run(bucket, name, results=True)
    return bucket


def test_a_run_of_the_list_has_every_field(tpuctl: Command, ended_runs: Bucket) -> None:
    listed = tpuctl("runs", "--json").json
    assert " ".join(listed) == "schema runs older"
    first, second = listed["runs"]
    assert (" ".join(first), " ".join(second), listed["older"]) == (RUN, RUN, 0)
    assert (first["run"], first["created"], first["ended"]) == ("r1", ENDED, ENDED)
    assert [first[name] for name in ("accelerator", "node", "zone")] == ["v3-32", "n1", "europe-west4-a"]
    assert [first[name] for name in ("dataset", "state", "exit_code")] == ["", "succeeded", 0]
    assert (first["submitter"], first["attempt"], first["steps_lost"]) == ("ada@laptop", 1, None)
    assert (first["tags"], first["notes"], " ".join(first["cost"])) == ({}, [], PRICE)
    metrics = tpuctl("runs", "--columns", "loss,accuracy", "--json").json["runs"][0]
    assert " ".join(metrics) == f"{RUN} metrics"
    assert metrics["metrics"] == {"loss": None, "accuracy": None}


def test_tags_and_notes_have_every_field(tpuctl: Command, ended_runs: Bucket) -> None:
    assert tpuctl("tag", "r1", "a=b", "--json").json == {
        "schema": 1,
        "run": "r1",
        "tags": {"a": "b"},
        "notes": [],
    }
    noted = tpuctl("note", "r1", "hello", "--json").json
    assert " ".join(noted) == "schema run tags notes"
    (note,) = noted["notes"]
    assert " ".join(note) == "text by at"
    assert note["text"] == "hello"
    shown = tpuctl("tag", "r1")
    assert shown.out.splitlines() == ["a=b", f"{note['at']} {note['by']}  hello"]


def test_a_removal_has_every_field(tpuctl: Command, ended_runs: Bucket) -> None:
    sizes = [item.size for item in ended_runs.objects("runs/r1/")]
    removed = tpuctl("rm", "r1", "--yes", "--json").json
    assert " ".join(removed) == "schema removed bucket_keeps"
    (run,) = removed["removed"]
    assert " ".join(run) == "run state objects bytes cost"
    assert (run["run"], run["bytes"], " ".join(run["cost"])) == ("r1", sum(sizes), PRICE)
    assert " ".join(removed["bucket_keeps"]) == "versions seconds"
    shown = tpuctl("rm", "r2", "--yes")
    assert shown.out.startswith(f"Removed r2: {len(sizes)} objects, ")
    assert shown.err.splitlines()[-1] == "Next: tpuctl runs"
    nothing = tpuctl("runs", "gc", "--yes", "--json").json
    assert nothing == {"schema": 1, "removed": [], "bucket_keeps": None}
    assert "Next: tpuctl runs" in tpuctl("runs", "gc", "--yes").err
    empty = tpuctl("runs")
    assert "There are no runs in gs://sim-project-tpuctl." in empty.err
    assert empty.err.splitlines()[-1] == "Next: tpuctl submit SCRIPT"


@pytest.mark.daily
def test_a_copy_and_its_check_have_every_field(tpuctl: Command, ended_runs: Bucket) -> None:
    pulled = tpuctl("pull", "r1", "--to", "copy", "--json").json
    fields = "schema run folder files bytes kept uncommitted checkpoints unfinished incomplete refused ended"
    assert " ".join(pulled) == fields
    assert (pulled["run"], pulled["folder"], pulled["kept"], pulled["ended"]) == ("r1", "copy", 0, True)
    assert (pulled["uncommitted"], pulled["incomplete"], pulled["refused"]) == ([], [], [])
    again = tpuctl("pull", "r1", "--to", "copy", "--json").json
    assert again["kept"] > 0
    checked = tpuctl("verify", "copy", "--partial", "--json")
    assert checked.code == 0, checked.err
    content = checked.json
    assert " ".join(content) == "schema run folder outcome files same checks differences"
    assert {name: content[name] for name in ("run", "folder", "outcome", "same", "differences")} == {
        "run": "r1", "folder": "copy", "outcome": "succeeded", "same": True, "differences": [],
    }  # fmt: skip
    assert {" ".join(check) for check in content["checks"]} == {"subject by detail"}
    shown = tpuctl("verify", "copy", "--partial")
    assert shown.out.split()[:3] == ["CHECK", "BY", "DETAIL"]
    assert "copy is run 'r1', as far as it was checked." in shown.err
    assert shown.err.splitlines()[-1] == "Next: tpuctl export r1"


def test_a_copy_that_differs_is_told_and_ends_with_4(tpuctl: Command, ended_runs: Bucket) -> None:
    assert tpuctl("pull", "r1", "--to", "copy").code == 0
    Path("copy/outputs/deep/er/x").write_bytes(b"other")
    Path("copy/checkpoints/model.pt").unlink()
    for options, count in (
        ((), "3 differences"),
        (("--partial",), "1 difference"),
        (("--offline",), "2 differences"),
    ):
        shown = tpuctl("verify", "copy", *options)
        assert shown.code == 4
        assert f"copy is not what the record of run 'r1' says: {count}." in shown.err
        assert "Hint: Download it again: tpuctl pull r1 --to ANOTHER_FOLDER" in shown.err
        assert "DIFFERENCE" in shown.out
        assert ("outputs/deep/er/x" in shown.out, "more differences" in shown.err) == (True, False)
    offline = tpuctl("verify", "copy", "--offline")
    assert "not checked" in offline.out
    assert "--offline" in offline.out
    content = tpuctl("verify", "copy", "--partial", "--json")
    assert (content.code, content.json["same"]) == (4, False)
    (difference,) = content.json["differences"]
    assert difference["name"] == "outputs/deep/er/x"
    assert content.json["error"]["exit_code"] == 4


def test_an_archive_and_a_comparison_have_every_field(tpuctl: Command, ended_runs: Bucket) -> None:
    waited = tpuctl("wait", "r1", "--json").json
    assert " ".join(waited) == "schema run outcome evidence exit_code"
    assert (waited["run"], waited["outcome"], waited["exit_code"]) == ("r1", "succeeded", 0)
    compared = tpuctl("diff", "r1", "r2", "--json").json
    assert " ".join(compared) == "schema runs equal differences code same unknown"
    assert (compared["runs"], compared["code"]) == (["r1", "r2"], [])
    described = tpuctl("describe", "r1", "--json").json
    assert " ".join(described) == "schema run"
    assert " ".join(described["run"]) == "name facts next"
    assert {" ".join(fact) for fact in described["run"]["facts"]} == {"name value from"}
    assert (described["run"]["name"], described["run"]["next"]) == ("r1", "tpuctl pull r1")
    stopped = tpuctl("cancel", "r1", "--json").json
    assert " ".join(stopped) == "schema run outcome stopped_by evidence workers"
    assert {" ".join(worker) for worker in stopped["workers"]} == {"worker exit_code signal"}
    assert (stopped["run"], stopped["outcome"], stopped["stopped_by"]) == ("r1", "succeeded", "")
    assert "Run 'r1' had ended before: succeeded, it ended." in tpuctl("cancel", "r1").err


def test_what_a_run_cost_has_every_field(tpuctl: Command, ended_runs: Bucket) -> None:
    costs = tpuctl("cost", "--since", "3650d", "--json").json
    assert " ".join(costs) == "schema since until by is_estimate total groups entries missing"
    assert (costs["by"], costs["is_estimate"]) == ("run", True)
    assert " ".join(costs["total"]) == "amounts unknown"
    for group in costs["groups"]:
        assert " ".join(group) == "run attempts seconds cost"
        assert " ".join(group["cost"]) == "amounts unknown"
    entry_fields = (
        "run attempt node zone uid user labels began ended seconds price_per_hour is_present_price cost"
    )
    for entry in costs["entries"]:
        assert " ".join(entry) == entry_fields
        assert (" ".join(entry["price_per_hour"]), " ".join(entry["cost"])) == (PRICE, PRICE)
    assert {entry["run"] for entry in costs["entries"]} >= {"r1", "r2"}
