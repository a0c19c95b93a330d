"""What data split and data sample share: the plan, the upload and what is shown of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from tpuctl.cli import output
from tpuctl.cli.datasets import rendering
from tpuctl.cli.progress import resumable, show_conversion, show_count
from tpuctl.cli.session import Session
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.flows.datasets.analysis.derive import Origin
    from tpuctl.flows.datasets.analysis.reading import ReportRecords


def origin_of(session: Session, ref: DatasetRef) -> Origin:
    """Return the dataset that records are drawn from."""
    from tpuctl.flows.datasets.analysis.derive import Origin  # noqa: PLC0415  NumPy: not for the other commands

    manifest = steps.manifest(session.context, ref)
    cloud = session.cloud
    return Origin(cloud.data_bucket, manifest, lambda bucket: cloud.source_objects(bucket))


@contextmanager
def drawn_plan(
    draw: Callable[[ReportRecords], AbstractContextManager[DatasetPlan]],
) -> Iterator[DatasetPlan]:
    """Yield the plan of a drawing, with progress until the records are drawn: the block may show its own."""
    with ExitStack() as sources:
        with show_count("records read") as report:
            plan = sources.enter_context(draw(report))
        yield plan


def upload(session: Session, plan: DatasetPlan, *, dry_run: bool) -> None:
    """Write a plan to the bucket, or show the requests that would."""
    from tpuctl.flows.datasets import upload as flow  # noqa: PLC0415  NumPy: not for the other commands

    bucket = session.cloud.data_bucket
    if dry_run:
        output.requests(flow.requests(bucket, plan), as_json=session.as_json)
        return
    for split in plan.splits:
        output.note(f"{split.name}: {rendering.count_of_records(split.records)}")
    problem = "It was interrupted: nothing was published."
    with (
        resumable(problem, "complete shards in the bucket are kept"),
        show_conversion(plan.records) as report,
    ):
        uploaded = flow.upload(bucket, plan, report)
    session.listed.add("datasets", plan.name)
    if session.as_json:
        state = {"already_there": uploaded.already_there, "shards_kept": uploaded.kept}
        output.json({**rendering.fields(uploaded.manifest, bucket.name), **state})
        return
    rendering.show_summary(
        uploaded.manifest, bucket.name, already_there=uploaded.already_there, kept=uploaded.kept
    )
