"""Changes of tags and notes: of many at once none is lost."""

from __future__ import annotations

import pytest

from tests.flows.runs.records import CREATED, write_run
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import NotFoundError, UsageError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep.collection import noting, requests, tagging, update
from tpuctl.parallel import fanout, values
from tpuctl.upkeep import MOST_NOTES, MOST_TAGS, TagChange


def tag(*words: str):
    return tagging(TagChange.parse(words))


def test_twenty_changes_at_once_are_all_there(bucket: Bucket) -> None:
    write_run(bucket, "r1")
    changes = [tag(f"k{number}=v") for number in range(10)]
    changes += [noting(f"note {number}", "ada", CREATED) for number in range(10)]
    values(fanout(lambda change: update(StoredRun(bucket, "r1"), change), changes, width=20))
    notes = StoredRun(bucket, "r1").notes()
    assert sorted(notes.tags) == sorted(f"k{number}" for number in range(10))
    assert sorted(note.text for note in notes.notes) == sorted(f"note {number}" for number in range(10))


def test_a_note_whose_answer_was_lost_is_kept_once(bucket: Bucket) -> None:
    run, change = write_run(bucket, "r1"), noting("hot", "ada", CREATED)
    update(run, change)
    assert [note.text for note in update(run, change).notes] == ["hot"]


def test_tags_are_set_replaced_and_removed(bucket: Bucket) -> None:
    run = write_run(bucket, "r1")
    update(run, tag("keep", "team=a"))
    assert update(run, tag("team=b", "keep-", "none-")).tags == {"team": "b"}
    item = bucket.stat(run.paths.notes)
    update(run, tag("team=b"))
    assert bucket.stat(run.paths.notes) == item, "nothing to write"


def test_both_are_bounded(bucket: Bucket) -> None:
    run = write_run(bucket, "r1")
    update(run, tag(*(f"k{number}" for number in range(MOST_TAGS))))
    with pytest.raises(UsageError, match=f"would have {MOST_TAGS + 1} tags"):
        update(run, tag("one-more"))
    for number in range(MOST_NOTES):
        update(run, noting(f"{number}", "ada", CREATED))
    with pytest.raises(UsageError, match=f"has {MOST_NOTES} notes"):
        update(run, noting("one more", "ada", CREATED))


def test_only_a_run_has_tags_and_what_is_no_record_is_not_written_over(bucket: Bucket) -> None:
    with pytest.raises(NotFoundError, match="There is no run 'r1'"):
        update(StoredRun(bucket, "r1"), tag("keep"))
    run = write_run(bucket, "r1")
    bucket.upload(run.paths.notes, [b'{"run": "r1", "schema": 1, "tags": {"a\\u001b[2J": ""}}'], "text/plain")
    with pytest.raises(BadObjectError, match=r"runs/r1/notes\.json is not a Notes record"):
        update(run, tag("keep"))
    assert b"keep" not in bucket.read(run.paths.notes)


def test_a_rehearsal_sends_nothing(bucket: Bucket) -> None:
    run = write_run(bucket, "r1")
    assert [request.method for request in requests(run, tag("keep"))] == ["POST"]
    assert bucket.stat(run.paths.notes) is None
    update(run, tag("keep"))
    assert requests(run, tag("keep")) == []
