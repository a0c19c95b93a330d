"""What a bucket's own rules do to a run: refused, told, or of no matter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import pytest

from tpuctl.catalogue.bucket_rules import BucketRules
from tpuctl.errors import ConfigError

TODAY = date(2026, 11, 29)


def rules(condition: Mapping[str, object], action: str = "Delete") -> BucketRules:
    return BucketRules("b", lifecycle=({"action": {"type": action}, "condition": condition},))


def texts(judged: BucketRules) -> list[str]:
    return [concern.text for concern in judged.concerns(TODAY)]


def test_a_bucket_without_rules_is_of_no_concern() -> None:
    assert texts(BucketRules("b", soft_delete_seconds=604_800)) == []
    assert BucketRules("b").facts() == "keeps nothing that is deleted"
    assert BucketRules("b", soft_delete_seconds=604_800).facts() == (
        "keeps, and bills, for 7d what is deleted or overwritten"
    )


@pytest.mark.parametrize(
    ("judged", "words", "flag"),
    [
        (BucketRules("b", retention_seconds=3600), "keeps each object for 1h", "--clear-retention-period"),
        (BucketRules("b", has_default_hold=True), "puts a hold", "--no-default-event-based-hold"),
        (BucketRules("b", is_requester_pays=True), "requester pays", "--no-requester-pays"),
        (
            rules({"age": 1}),
            "deletes runs/ (records, logs and checkpoints of runs); nodes/",
            "--lifecycle-file",
        ),
        (rules({"createdBefore": "2027-01-01"}), ", at once", "--lifecycle-file"),
        (rules({"age": 0, "matchesSuffix": [".json"]}), "what ends with .json in runs/", "--lifecycle-file"),
    ],
)
def test_what_no_run_can_work_with_is_refused_with_the_command(
    judged: BucketRules, words: str, flag: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        judged.require_usable(TODAY)
    assert words in raised.value.message
    assert f"gcloud storage buckets update gs://b {flag}" in raised.value.hint


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (
            {"age": 7},
            "runs/ (records, logs and checkpoints of runs); nodes/ (what ran on each TPU); bundles/ (the "
            "code, which a restart needs), 7 days after it was written",
        ),
        (
            {"age": 29, "matchesPrefix": ["bundles/"], "matchesSuffix": [".tar.gz"]},
            "what ends with .tar.gz in bundles/, 29 days after it was written",
        ),
        (
            {"age": 1, "matchesPrefix": ["tmp/", "runs/old"]},
            "runs/old*, 1 day after it was written",
        ),
        (
            {"age": 0, "matchesPrefix": ["run"], "matchesSuffix": [".log"]},
            "what ends with .log in runs/, at once",
        ),
    ],
)
def test_what_deletes_records_of_runs_that_go_on_is_told(condition: Mapping[str, object], told: str) -> None:
    (concern,) = rules(condition).require_usable(TODAY)
    assert concern.text == f"A lifecycle rule of gs://b deletes {told}"


def test_what_no_object_of_a_run_meets_is_of_no_concern() -> None:
    for condition in (
        {"age": 30},
        {"age": 1, "isLive": False},
        {"age": 1, "daysSinceNoncurrentTime": 1},
        {"numNewerVersions": 3},
        {"daysSinceCustomTime": 1},
        {"age": 1, "matchesStorageClass": ["NEARLINE"]},
        {"createdBefore": "2026-11-29"},
        {"age": 1, "matchesPrefix": ["datasets/", "tmp/"]},
        {"age": 1, "matchesSuffix": [".tmp"]},
    ):
        assert texts(rules(condition)) == [], condition
    for action in ("AbortIncompleteMultipartUpload", "SetStorageClass"):
        assert texts(rules({"age": 1}, action)) == [], action
    assert len(texts(rules({"age": 1, "matchesStorageClass": ["STANDARD"]}))) == 1


def test_versions_without_end_are_told_by_doctor_alone() -> None:
    (concern,) = BucketRules("b", has_versions=True).concerns(TODAY)
    assert "every former version" in concern.text
    assert BucketRules("b", has_versions=True).require_usable(TODAY) == []
    for condition in ({"numNewerVersions": 3}, {"isLive": False, "age": 7}, {"daysSinceNoncurrentTime": 7}):
        lifecycle = ({"action": {"type": "Delete"}, "condition": condition},)
        assert texts(BucketRules("b", has_versions=True, lifecycle=lifecycle)) == [], condition
    dated = rules({"daysSinceCustomTime": 7}).lifecycle
    assert len(texts(BucketRules("b", has_versions=True, lifecycle=dated))) == 1, "it deletes no version"


def test_the_worst_comes_first() -> None:
    worst = BucketRules(
        "b", has_versions=True, retention_seconds=60, lifecycle=rules({"age": 5}).lifecycle
    ).concerns(TODAY)
    assert [concern.is_fatal for concern in worst] == [True, False, False]
