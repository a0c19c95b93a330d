"""The fields of runs in JSON, on which programs of users rely, and what is shown of runs that have ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.runs.upkeep.records import write_ended_run
from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket

Command = Callable[..., CommandResult]
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
