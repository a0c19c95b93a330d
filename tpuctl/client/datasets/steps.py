"""What calls and commands do with datasets: each a flow with this client's bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.client.context import Context
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets import lookup

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.data.tokens import Vocabulary
    from tpuctl.flows.datasets.conversion import Report
    from tpuctl.flows.datasets.head import Example
    from tpuctl.flows.datasets.pull import DatasetCopy
    from tpuctl.flows.datasets.request import UploadRequest
    from tpuctl.flows.datasets.upload import Uploaded
    from tpuctl.flows.progress import Progress
    from tpuctl.flows.progress import Report as ReportLine

# The flows import NumPy, which takes long: only the calls that need it.


def manifest(context: Context, ref: DatasetRef) -> Manifest:
    """Return the manifest of a dataset, of its newest version unless `ref` names one."""
    return lookup.read_manifest(context.cloud.data_bucket, ref, context.warn)


def manifests(context: Context) -> list[Manifest]:
    """Return the manifests of all datasets, by name and version."""
    return list(lookup.list_manifests(context.cloud.data_bucket, context.warn))


def check_source(context: Context, request: UploadRequest) -> None:
    """Raise an error of the bucket before a large source is listed for nothing."""
    if request.source_exists:  # else the plan says so
        context.cloud.data_bucket.check()


def opened_plan(
    context: Context, request: UploadRequest, report: Callable[[int, int], None]
) -> AbstractContextManager[DatasetPlan]:
    """Open the plan of a request, whose source may lie in a bucket; the block's end closes it."""
    from tpuctl.flows.datasets.plan import open_plan

    return open_plan(request, report, lambda bucket: context.cloud.source_objects(bucket))


def traffic_warning(context: Context, request: UploadRequest, size: str) -> str:
    """Return the sentence about bytes that leave the location of the source's bucket; empty for none."""
    from tpuctl.flows.datasets import traffic

    return traffic.traffic_warning(context.cloud, request, size) if request.is_in_bucket else ""


def upload(
    context: Context,
    plan: DatasetPlan,
    request: UploadRequest,
    report: Report,
    keep: Path | None = None,
    beam_options: Sequence[str] | None = None,
) -> Uploaded:
    """Write what is planned; with `beam_options` by a pipeline of Apache Beam."""
    from tpuctl.flows.datasets import upload as flow

    if beam_options is None:
        return flow.upload(context.cloud.data_bucket, plan, report, skip_bad=request.skip_bad, keep=keep)
    from tpuctl.flows.datasets.beam import upload as beam

    return beam.upload(context.cloud, plan, request, beam_options, report)


def head(context: Context, of: Manifest, split: str, count: int) -> tuple[list[Example], Vocabulary | None]:
    """Return the first examples, and the vocabulary of token ids if there is one."""
    from tpuctl.flows.datasets import head as flow

    bucket = context.cloud.data_bucket
    return flow.head(bucket, of, split=split, count=count), flow.read_vocabulary(bucket, of)


def verify(context: Context, of: Manifest, report: Callable[[int, int], None], *, deep: bool) -> None:
    """Raise StateError unless every object is as the manifest says."""
    from tpuctl.flows.datasets import pull as flow

    flow.verify(context.cloud.data_bucket, of, deep=deep, report=report)


def pull(context: Context, of: Manifest, folder: Path, report: ReportLine, progress: Progress) -> DatasetCopy:
    """Bring a dataset into a folder."""
    from tpuctl.flows.datasets import pull as flow

    return flow.pull(context.cloud.data_bucket, of, folder, report, progress)
