"""What `data stats` says while it reads."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import SplitEntry
from tpuctl.flows.datasets.analysis import stats


@pytest.mark.parametrize(("sample", "told"), [(None, [1, 2, 3, 4, 5]), (2, [1, 2, 3, 4])])
def test_each_record_that_is_read_counts_once(
    monkeypatch: pytest.MonkeyPatch, sample: int | None, told: list[int]
) -> None:
    splits = {"train": SplitEntry(3, 100, ()), "test": SplitEntry(2, 100, ())}
    manifest = msgspec.structs.replace(MANIFEST, splits=splits, features={})
    monkeypatch.setattr(stats, "split_records", lambda _, __, split: iter([b""] * splits[split].records))
    reports: list[tuple[int, int]] = []
    bucket = cast("Bucket", MemoryBucket())
    stats.stats(bucket, manifest, lambda *numbers: reports.append(numbers), sample=sample)
    assert reports == [(done, len(told)) for done in told]
