"""Makes the plan of an UploadRequest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.data.output.shard_counts import DEFAULT_SIZE
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.tokens.vocabulary import Vocabulary
from tpuctl.flows.datasets.request import UploadRequest

ReportRecords = Callable[[int, int], None]
"""Takes the records listed so far and their number, 0 while it is not known."""


def make_plan(request: UploadRequest, report: ReportRecords = lambda listed, total: None) -> DatasetPlan:
    """List the records of the source and decide on splits and shards; the caller closes `plan.source`.

    Raises UsageError that names the option, or what is bad in the source.
    """
    return plan(
        Path(request.source),
        name=request.ref.name,
        version=request.ref.version,
        kind=request.kind,
        options=request.options,
        splits=request.splits,
        hosts=request.hosts,
        shards=request.shards,
        shard_size=DEFAULT_SIZE if request.shard_size is None else request.shard_size,
        seed=request.seed,
        skip_bad=request.skip_bad,
        vocabulary=None if request.vocabulary is None else Vocabulary(request.vocabulary),
        progress=report,
    )


@contextmanager
def open_plan(
    request: UploadRequest, report: ReportRecords = lambda listed, total: None
) -> Iterator[DatasetPlan]:
    """Yield the plan of a request; its source is closed when the block ends."""
    dataset_plan = make_plan(request, report)
    try:
        yield dataset_plan
    finally:
        dataset_plan.source.close()
