"""Makes the plan of an UploadRequest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.bucket_layout import split_gs
from tpuctl.bucket_objects import ListedObjects
from tpuctl.data.output.shards import DEFAULT_SIZE
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.tokens import Vocabulary
from tpuctl.data.trees.objects import object_tree
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.request import UploadRequest

ReportRecords = Callable[[int, int], None]
"""Takes the records listed so far and their number, 0 while it is not known."""


OpenBucket = Callable[[str], ListedObjects]
"""Returns the objects of a bucket by its name."""


def no_buckets(name: str) -> ListedObjects:
    """Refuse every bucket: for callers whose sources are on this machine."""
    raise UsageError(
        f"gs://{name} cannot be read here.", hint="Copy the source to this machine.", bucket=name
    )


def make_plan(
    request: UploadRequest,
    report: ReportRecords = lambda listed, total: None,
    open_bucket: OpenBucket = no_buckets,
) -> DatasetPlan:
    """List the records of the source and decide on splits and shards; the caller closes `plan.source`.

    Raises UsageError that names the option, or what is bad in the source, and the errors of its bucket.
    """
    return plan(
        _source(request, open_bucket),
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
        file_format=request.file_format,
        headers=request.headers,
        progress=report,
    )


@contextmanager
def open_plan(
    request: UploadRequest,
    report: ReportRecords = lambda listed, total: None,
    open_bucket: OpenBucket = no_buckets,
) -> Iterator[DatasetPlan]:
    """Yield the plan of a request; its source is closed when the block ends."""
    dataset_plan = make_plan(request, report, open_bucket)
    try:
        yield dataset_plan
    finally:
        dataset_plan.source.close()


def _source(request: UploadRequest, open_bucket: OpenBucket) -> Path | Tree:
    if not request.is_in_bucket:
        return Path(request.source)
    bucket, name = split_gs(request.source)
    return object_tree(open_bucket(bucket), name)
