"""Runs as the listing of the bucket tells of them, and one's own last among those of others.

Whatever lies beside them in the bucket, good runs are listed, and one's own last one is the default.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bucket_objects.records import KINDS
from tests.bucket_objects.test_fuzz import candidates
from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, pass_time, write_run
from tpuctl import runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import NotFoundError, TpuctlError, UsageError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import (
    ListedRun,
    StartedRun,
    find_run,
    half_removed,
    listed_runs,
    started_on,
    stored_runs,
)
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.summaries import take_page
from tpuctl.runs import BY_MACHINE, BY_WORKERS, Run, Verdict, encode, verdict_type
from tpuctl.upkeep import REMOVAL_TYPE

START = "2026-01-01T12:00:00Z"


class Site:
    """A bucket of runs."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.warnings: list[str] = []

    def submit(self, name: str, submitter: str = "ada@laptop", attempts: int = 1) -> None:
        run = StoredRun(self.bucket, name)
        run.create(Run(name, CREATED, submitter, "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        for number in range(1, attempts + 1):
            run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=number))

    def end(self, name: str, basis: str = BY_WORKERS, kind: str | None = None, **fields: Any) -> None:
        verdict = Verdict(name, runs.LOST, 1, CREATED, "because", basis=basis, **fields)
        content_type = verdict_type(verdict) if kind is None else kind
        self.memory.put(f"runs/{name}/verdict.json", encode(verdict), content_type)

    def listed(self) -> dict[str, ListedRun]:
        return {run.name: run for run in listed_runs(self.bucket, self.warnings.append)}

    def find(self, name: str | None = None, submitter: str = "ada@laptop") -> str:
        return find_run(self.bucket, name, self.warnings.append, submitter).name


@pytest.fixture
def site() -> Site:
    """An empty bucket."""
    return Site()


class TestListing:
    def test_the_oldest_comes_first_whatever_it_is_called(self, site: Site) -> None:
        for name in ("c", "a", "b"):
            site.submit(name)
        assert list(site.listed()) == [run.name for run in stored_runs(site.bucket)] == ["c", "a", "b"]
        assert site.warnings == []

    def test_a_run_that_goes_on_has_no_verdict(self, site: Site) -> None:
        site.submit("r1")
        run = site.listed()["r1"]
        assert (run.has_verdict, run.is_open, run.outcome, run.notes, run.ended) == (
            False,
            True,
            "",
            None,
            "",
        )
        assert run.record.name == "runs/r1/run.json"

    def test_one_that_has_ended_says_when_and_how(self, site: Site) -> None:
        site.submit("r1")
        site.memory.pass_time(60)
        site.end("r1")
        run = site.listed()["r1"]
        assert (run.has_verdict, run.is_open, run.outcome) == (True, False, "lost")
        assert run.ended == "2026-01-01T12:01:00Z"

    def test_one_that_is_started_again_is_open(self, site: Site) -> None:
        site.submit("r1")
        site.end("r1", restarts=True)
        run = site.listed()["r1"]
        assert (run.has_verdict, run.is_open, run.outcome) == (True, True, "")

    @pytest.mark.parametrize(
        ("basis", "age", "outcome"),
        [(BY_WORKERS, 0, "lost"), (BY_MACHINE, 7200, ""), (BY_MACHINE, 7201, "lost")],
    )
    def test_what_a_machine_says_is_final_after_two_hours(
        self, site: Site, basis: str, age: float, outcome: str
    ) -> None:
        site.submit("r1")
        site.end("r1", basis)
        site.memory.pass_time(age)
        assert site.listed()["r1"].outcome == outcome

    def test_an_earlier_version_does_not_tell_how_it_ended(self, site: Site) -> None:
        site.submit("r1")
        site.end("r1", kind="application/json")
        run = site.listed()["r1"]
        assert (run.has_verdict, run.is_open, run.outcome) == (True, False, "")

    def test_notes_are_of_their_run(self, site: Site) -> None:
        site.submit("r1")
        site.submit("r2")
        site.memory.put("runs/r2/notes.json", b"{}")
        notes = {name: run.notes and run.notes.name for name, run in site.listed().items()}
        assert notes == {"r1": None, "r2": "runs/r2/notes.json"}

    def test_what_is_no_run_is_named(self, site: Site) -> None:
        site.submit("r1")
        site.memory.put("runs/No Name/run.json", b"{}")
        site.memory.put("runs/gone/run.json", b"{}", REMOVAL_TYPE)
        site.memory.put("runs/No Name/verdict.json", b"{}")
        site.memory.put("runs/deep/er/run.json", b"{}")
        assert list(site.listed()) == ["r1"]
        assert sorted(site.warnings) == [
            "Run 'gone' is being removed; 'tpuctl rm gone' completes it.",
            "runs/No Name/run.json is in a folder that cannot be a run's.",
        ]

    def test_removals_that_were_begun_are_listed(self, site: Site) -> None:
        site.submit("r1")
        for name in ("gone", "No Name"):
            site.memory.put(f"runs/{name}/run.json", b"{}", REMOVAL_TYPE)
        assert half_removed(site.bucket.objects("runs/")) == ["gone"]


def test_attempts_on_a_node_are_listed_the_newest_first(site: Site) -> None:
    node = NodePaths("p", "z", "n1", "7")
    for number, name in enumerate(
        ("b/1.json", "a/2.json", "a/10.json", "a/0.json", "a/b/1.json", "A/1.json", "x")
    ):
        site.memory.put(f"{node.runs}{name}", b"{}")
        site.memory.pass_time(number + 1)
    assert started_on(site.bucket, node) == [
        StartedRun("a", 10, "2026-01-01T12:00:03Z"), StartedRun("a", 2, "2026-01-01T12:00:01Z"),
        StartedRun("b", 1, START),
    ]  # fmt: skip


class TestFind:
    def test_a_name_is_enough(self, site: Site) -> None:
        assert site.find("r9") == "r9", "it is not read yet"
        with pytest.raises(UsageError):
            site.find("No Name")
        site.memory.put("runs/gone/run.json", b"{}", REMOVAL_TYPE)
        with pytest.raises(TpuctlError, match="is being removed"):
            site.find("gone")

    def test_ones_own_last_is_found_behind_those_of_others(self, site: Site) -> None:
        site.submit("first")
        site.submit("second")
        for number in range(20):
            site.submit(f"other-{number}", "bob@laptop")
        assert site.find() == "second"
        assert site.find(submitter="bob@laptop") == "other-19"

    def test_one_without_an_attempt_is_passed_over(self, site: Site) -> None:
        site.submit("first")
        site.submit("second", attempts=0)
        assert site.find() == "first"
        assert site.warnings == ["runs/second/ has no attempt, so it is not taken for your last run."]

    def test_a_record_that_cannot_be_read_is_passed_over_and_named(self, site: Site) -> None:
        site.submit("first")
        site.memory.put("runs/second/run.json", b"{")
        assert site.find() == "first"
        assert len(site.warnings) == 1
        assert site.warnings[0].startswith("runs/second/run.json ")

    def test_without_any_run_one_is_to_be_submitted(self, site: Site) -> None:
        with pytest.raises(NotFoundError) as error:
            site.find()
        assert error.value.message == "There is no run yet."
        assert error.value.hint == "Submit one: tpuctl submit jobs/digits.py"

    def test_without_one_of_ones_own_the_newest_is_named(self, site: Site) -> None:
        site.submit("first", "bob@laptop")
        site.submit("second", "eve@laptop")
        with pytest.raises(NotFoundError) as error:
            site.find()
        assert error.value.message == "None of the last 2 runs is of ada@laptop."
        assert error.value.hint == "Name the run: the newest is 'second' of eve@laptop."

    def test_whoever_asks_is_the_submitter_unless_somebody_else_is_named(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs, "submitter", lambda: "eve@laptop")
        site.submit("first", "eve@laptop")
        site.submit("second", "bob@laptop")
        assert find_run(site.bucket, None).name == "first"

    def test_it_is_looked_for_among_the_last_thousand(self, site: Site) -> None:
        site.submit("mine")
        other = encode(Run("x", CREATED, "bob@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        for number in range(1000):
            name = f"other-{number}"
            site.memory.put(f"runs/{name}/run.json", other.replace(b'"x"', f'"{name}"'.encode()))
        with pytest.raises(NotFoundError, match=r"^None of the last 1000 runs is of ada@laptop\.$"):
            site.find()


FOLDERS = st.sampled_from(["bad", "BAD", "²", "..", ".git", "x" * 200, "a b", "\x1b[2J", "\u202e", "-rf"])
PLACES = {
    # object below a run's folder: the kind of record that belongs there
    "run.json": "run.json",
    "verdict.json": "verdict.json",
    "attempts/1/attempt.json": "attempt.json",
    "attempts/²/attempt.json": "attempt.json",
    "attempts/1/workers/0/status.json": "status.json",
    "attempts/9/workers/0/status.json": "status.json",
    "attempts/1/workers/0/log/000001.log": "vocabulary",
}


@st.composite
def hostile_objects(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    """Names and contents of objects that no tpuctl wrote."""
    places = draw(st.lists(st.tuples(FOLDERS, st.sampled_from(sorted(PLACES))), max_size=6, unique=True))
    return [(f"runs/{folder}/{place}", draw(candidates(PLACES[place]))) for folder, place in places]


def test_good_runs_are_listed_whatever_lies_beside_them(bucket: Bucket) -> None:
    for name in ("good-1", "good-2"):
        write_run(bucket, name)
    pass_time(bucket, 3600)
    witnesses = Witnesses(MemoryProvider())

    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(hostile_objects())
    def holds(objects: list[tuple[str, bytes]]) -> None:
        for name, content in objects:
            bucket.upload(name, [content], "application/json")
        warnings: list[str] = []
        listed = [summary.info.name for summary in take_page(bucket, witnesses, warnings.append).runs]
        assert [name for name in listed if name.startswith("good")] == ["good-1", "good-2"]
        assert {name for name in listed if not name.startswith("good")} <= {"bad"}
        assert all(line.isprintable() for line in warnings)
        assert find_run(bucket, None, warnings.append, "ada@laptop").name in ("good-2", "bad")
        for name in {item.name for item in bucket.objects("runs/")} - kept:
            for item in bucket.objects(name, most=1):
                bucket.remove(item)

    kept = {item.name for item in bucket.objects("runs/")}
    holds()


def test_reading_a_run_of_any_content_is_a_record_or_an_error_of_tpuctl(bucket: Bucket) -> None:
    run = write_run(bucket, "bad")

    def planted(place: str) -> st.SearchStrategy[tuple[str, bytes]]:
        return st.tuples(st.just(f"{run.paths.folder}{place}"), candidates(PLACES[place]))

    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(sorted(PLACES)).flatmap(planted))
    def holds(item: tuple[str, bytes]) -> None:
        bucket.upload(item[0], [item[1]], "application/json")
        stored, messages = find_run(bucket, "bad"), []
        last = stored.last_readable_attempt
        for read in (lambda: stored.record, stored.verdict, lambda: last().statuses()):
            try:
                read()
            except TpuctlError as error:
                messages.append(error.message)
        assert all(message.isprintable() for message in messages)

    holds()
    assert set(PLACES.values()) <= set(KINDS)
