"""Says in what two datasets differ: features, classes, splits, and records by their content."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tpuctl.data.analysis.comparison import Comparison, compare
from tpuctl.data.analysis.fingerprints import Fingerprints, hashes
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.feature_types import feature_type
from tpuctl.data.schema.features import Feature
from tpuctl.datasets import DatasetRef
from tpuctl.flows.datasets.analysis.reading import ReportRecords, in_parallel, split_records

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

_MOST_NAMED = 5


@dataclass(frozen=True)
class Difference:
    """One fact that two datasets do not share; None where one of them has no such thing."""

    name: str
    """`feature image`, `classes`, `split train`."""
    a: str | None
    b: str | None


@dataclass(frozen=True)
class DatasetDiff:
    """In what dataset B differs from A."""

    a: DatasetRef
    b: DatasetRef
    facts: tuple[Difference, ...]
    records: Comparison

    @property
    def is_empty(self) -> bool:
        """Whether both hold the same records with the same features in the same splits."""
        records = self.records
        return not (self.facts or records.only_a or records.only_b or records.moved or records.changed)


def diff(bucket: Bucket, a: Manifest, b: Manifest, report: ReportRecords) -> DatasetDiff:
    """Read both datasets, and compare them; raises NotFoundError, StateError and UsageError as `stats`."""
    splits = sorted({*a.splits, *b.splits})
    with ExitStack() as stack:
        prints = [stack.enter_context(closing(Fingerprints())) for _ in (a, b)]
        done, total = 0, a.records + b.records
        for manifest, own in zip((a, b), prints, strict=True):
            work = partial(hashes, features=manifest.features)
            for split in manifest.splits:
                number = splits.index(split)
                records = in_parallel(work, split_records(bucket, manifest, split))
                for index, content in enumerate(records):
                    own.add(content, 0, number, index)
                    done += 1
                    report(done, total)
        return DatasetDiff(a.ref, b.ref, tuple(_facts(a, b)), compare(prints[0], prints[1], splits))


def _facts(a: Manifest, b: Manifest) -> list[Difference]:
    facts = []
    for name in dict.fromkeys((*a.features, *b.features)):
        first, second = a.features.get(name), b.features.get(name)
        if first != second:
            facts.append(Difference(f"feature {name}", _text(first, second), _text(second, first)))
    if a.classes != b.classes:
        facts.append(Difference("classes", _names(a.classes, b.classes), _names(b.classes, a.classes)))
    for name in dict.fromkeys((*a.splits, *b.splits)):
        counts = [manifest.splits[name].records if name in manifest.splits else None for manifest in (a, b)]
        if counts[0] != counts[1]:
            facts.append(Difference(f"split {name}", *(_records_text(count) for count in counts)))
    return facts


def _text(feature: Feature | None, other: Feature | None) -> str | None:
    """Return its type in words; all of it where the words are those of the other one, too."""
    if feature is None:
        return None
    words = feature_type(feature)
    return words if other is None or feature_type(other) != words else str(feature)


def _names(own: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return the number of classes, and those that the other dataset does not have."""
    known = set(others)
    more = [name for name in own if name not in known]
    named = ", ".join([*more[:_MOST_NAMED], *(["..."] if len(more) > _MOST_NAMED else [])])
    count = f"{len(own)} class{'es' * (len(own) != 1)}"
    return f"{count}, with {named}" if more else count


def _records_text(count: int | None) -> str | None:
    return None if count is None else f"{count} record{'s' * (count != 1)}"
