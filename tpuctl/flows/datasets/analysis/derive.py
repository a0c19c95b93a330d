"""Plans a dataset of the records of another: with other splits, or a sample of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.data.analysis.redraw import draw_sample, label_fields, redraw, scan
from tpuctl.data.options import Options
from tpuctl.data.order.splits import Members, parse_splits
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.plan import DatasetPlan, plan_members
from tpuctl.data.schema.features import Label
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.objects import object_tree
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.analysis.reading import ReportRecords
from tpuctl.flows.datasets.head import read_vocabulary
from tpuctl.flows.datasets.plan import OpenBucket

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


@dataclass(frozen=True)
class Origin:
    """A dataset in the bucket whose records are drawn from."""

    bucket: Bucket
    manifest: Manifest
    open_bucket: OpenBucket
    """Returns the objects of a bucket, to read them at any place."""

    @contextmanager
    def opened(self) -> Iterator[Source]:
        """Yield its records; the block's end releases them."""
        tree = object_tree(self.open_bucket(self.bucket.name), self.manifest.ref.folder.rstrip("/"))
        source = open_source(tree, "tfds", Options(), lambda scanned, total: None)
        try:
            yield source
        finally:
            source.close()

    def label(self, chosen: str | None) -> str:
        """Return the field whose classes keep their shares; empty for none. Raises UsageError."""
        labels = [name for name, feature in self.manifest.features.items() if isinstance(feature, Label)]
        return label_fields(labels, chosen)

    def next_version(self) -> DatasetRef:
        """Return the version after this one."""
        major, minor, _ = self.manifest.version.split(".")
        return DatasetRef(self.manifest.name, f"{major}.{int(minor) + 1}.0")


@contextmanager
def split_plan(
    origin: Origin, ref: DatasetRef, splits: str, report: ReportRecords, *, stratify: str | None = None,
    group_duplicates: bool = False, seed: int = 0,
) -> Iterator[DatasetPlan]:  # fmt: skip
    """Yield the plan of the same records in other splits: `train=0.8,test=0.2`.

    Each class of the field `stratify` keeps its share, by default those of the only label; of an empty name,
    none. Raises UsageError that names the option.
    """
    shares = parse_splits(splits)
    label = origin.label(stratify)
    with origin.opened() as source:
        drawn = redraw(source, shares, seed, scan(source, label, report, grouped=group_duplicates))
        yield _plan(origin, ref, source, drawn, seed)


@contextmanager
def sample_plan(
    origin: Origin, ref: DatasetRef, count: int, report: ReportRecords, *, seed: int = 0
) -> Iterator[DatasetPlan]:
    """Yield the plan of `count` random records, in which each split and class has its share."""
    with origin.opened() as source:
        drawn = draw_sample(source, count, seed, scan(source, origin.label(None), report, grouped=False))
        yield _plan(origin, ref, source, drawn, seed)


def _plan(origin: Origin, ref: DatasetRef, source: Source, drawn: list[Members], seed: int) -> DatasetPlan:
    if ref == origin.manifest.ref:
        raise UsageError(
            f"{ref} is the dataset itself.", hint="Name another version: --as NAME/VERSION.", dataset=str(ref)
        )
    made_with = origin.manifest.source.options
    options = Options(tokens=made_with.tokens if made_with else None)
    vocabulary = read_vocabulary(origin.bucket, origin.manifest)
    return plan_members(source, drawn, ref, seed=seed, options=options, vocabulary=vocabulary)
