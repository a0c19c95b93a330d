"""tag, note, rm and runs gc, as their user sees them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.runs.records import write_run, write_status
from tests.flows.runs.upkeep.records import rest_of, write_ended_run
from tests.forks import commands
from tests.running_simulator import CommandResult
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
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
