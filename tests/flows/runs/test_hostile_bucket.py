"""Whatever lies beside them in the bucket, good runs are listed, and one's own last one is the default."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bucket_objects.records import KINDS
from tests.bucket_objects.test_fuzz import candidates
from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import pass_time, write_run
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import find_run
from tpuctl.flows.runs.summaries import take_page

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
