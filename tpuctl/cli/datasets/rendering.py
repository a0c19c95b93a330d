"""Formats a dataset for all data commands: a table row, facts, JSON, a sentence.

- The command data plan, and how a plan is printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets.options import describe_tokens, source_options
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.features import feature_type
from tpuctl.shells import again

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.data.source import Source
    from tpuctl.flows.datasets.request import UploadRequest


COLUMNS = ("NAME", "VERSION", "SPLITS", "RECORDS", "SHARDS", "SIZE")
_MOST_BAD = 5


def row(manifest: Manifest) -> tuple[object, ...]:
    """Return the cells of `COLUMNS`."""
    splits, size = ", ".join(manifest.splits), output.format_bytes(manifest.bytes)
    return (manifest.name, manifest.version, splits, manifest.records, len(manifest.shards), size)


def fields(manifest: Manifest, bucket: str) -> dict[str, object]:
    """Return a dataset as JSON has it."""
    return {
        "name": manifest.name,
        "version": manifest.version,
        "uri": manifest.ref.uri(bucket),
        "records": manifest.records,
        "bytes": manifest.bytes,
        "shards": len(manifest.shards),
        "file_format": manifest.file_format,
        "splits": {name: split.records for name, split in manifest.splits.items()},
        "classes": list(manifest.classes),
        "skipped": manifest.source.skipped,
        "digest": manifest.digest,
    }


def show_summary(manifest: Manifest, bucket: str, *, already_there: bool, kept: int) -> None:
    """Print the dataset that was uploaded; `kept` is the number of shards from an earlier upload."""
    shards = f"{len(manifest.shards)} ({output.format_bytes(manifest.bytes)})"
    facts = {
        "dataset": f"{manifest.ref}{' (was there already)' if already_there else ''}",
        "records": manifest.records,
        "classes": len(manifest.classes),
        "shards": f"{shards}, {kept} kept from an earlier upload" if kept else shards,
        "skipped": manifest.source.skipped,
        "where": manifest.ref.uri(bucket),
    }
    output.facts({name: value for name, value in facts.items() if value != 0})
    _note_skipped(manifest)
    if manifest.source.skipped > _MOST_BAD:
        output.note(f"All skipped records: tpuctl data describe {manifest.name} --json")


def show_description(manifest: Manifest, bucket: str) -> None:
    """Print the source, fields and splits of a dataset."""
    output.facts(_facts(manifest, bucket))
    printing.write()
    types = [(name, feature_type(feature)) for name, feature in manifest.features.items()]
    output.table(("FIELD", "TYPE"), types)
    printing.write()
    splits = [
        (name, split.records, len(split.shards), output.format_bytes(split.bytes))
        for name, split in manifest.splits.items()
    ]
    output.table(("SPLIT", "RECORDS", "SHARDS", "SIZE"), splits)
    _note_skipped(manifest)


def sentence(manifest: Manifest) -> str:
    """Return the size as `16 records in 4 shards`."""
    shards = f"{len(manifest.shards)} shard{'s' * (len(manifest.shards) > 1)}"
    return f"{count_of_records(manifest.records)} in {shards}"


def count_of_records(count: int) -> str:
    """Return a number of records with its noun."""
    return f"{count} record{'s' * (count != 1)}"


def _facts(manifest: Manifest, bucket: str) -> dict[str, object]:
    source = manifest.source
    tokens = source.options.tokens if source.options else None
    return {
        "dataset": manifest.ref,
        "records": manifest.records,
        "size": output.format_bytes(manifest.bytes),
        **({"format": manifest.file_format} if manifest.file_format != "tfrecord" else {}),
        "made from": f"{source.kind}, seed {source.seed}",
        **({"tokens": describe_tokens(tokens)} if tokens else {}),
        "skipped": source.skipped,
        "digest": manifest.digest[:12],
        "where": manifest.ref.uri(bucket),
    }


def _note_skipped(manifest: Manifest) -> None:
    for record in manifest.source.bad[:_MOST_BAD]:
        output.note(f"skipped: {record}")


_MOST_NAMED = 100
"""Bad pictures by name in JSON."""


@click.command("plan")
@source_options
@with_session
def plan(session: Session, request: UploadRequest) -> None:
    """Show the records, bytes and shards that an upload would write, and why. Needs no bucket.

    \b
    Example:
      tpuctl data plan reviews ./reviews.csv --tokens wordpiece --vocabulary 8000
      tpuctl data plan cats_dogs ./images --for v3-32
    """
    with listed_plan(session, request) as dataset_plan:
        if session.as_json:
            output.json(_fields(dataset_plan))
        else:
            _show_table(dataset_plan)
            words = session.typed[2:] or (request.ref.name, request.source)
            skip = {"--skip-bad": ""} if dataset_plan.source.bad_images else {}
            output.hint(again(("data", "upload", *words), skip))


@contextmanager
def listed_plan(session: Session, request: UploadRequest) -> Iterator[DatasetPlan]:
    """Yield the plan of a request, with progress while its source is listed; the block's end closes it."""
    with ExitStack() as sources:
        with show_count("records listed") as report:
            dataset_plan = sources.enter_context(steps.opened_plan(session, request, report))
        if warning := steps.traffic_warning(session, request, _size(dataset_plan, dataset_plan.bytes)):
            output.note(warning)
        yield dataset_plan


def show_notes(dataset_plan: DatasetPlan) -> None:
    """Print on stderr what becomes of pictures and texts, and the first bad records."""
    source = dataset_plan.source
    if source.also:
        others = " or ".join(f"--format {kind}" for kind in source.also)
        output.note(
            f"The source is read as {source.kind}; files of {' and '.join(source.also)} are left out: "
            f"{others} reads those."
        )
    if source.images:
        output.note(f"{source.images.summary}.")
    for record in source.bad_images[:_MOST_BAD]:
        output.note(f"bad: {record}")
    if dataset_plan.options.tokens:
        output.note(f"tokens: {describe_tokens(dataset_plan.options.tokens)}")
    for record in source.bad[:_MOST_BAD]:
        output.note(f"skipped: {record}")


def _show_table(dataset_plan: DatasetPlan) -> None:
    rows = [
        (
            split.name,
            split.records,
            _size(dataset_plan, split.bytes),
            split.sharding.count,
            split.sharding.why,
        )
        for split in dataset_plan.splits
    ]
    output.table(("SPLIT", "RECORDS", "SIZE", "SHARDS", "WHY"), rows)
    size = _size(dataset_plan, dataset_plan.bytes)
    records = count_of_records(dataset_plan.records)
    output.note(f"{records} of {dataset_plan.source.kind}, {size} in all.")
    show_notes(dataset_plan)


def _size(dataset_plan: DatasetPlan, size: int) -> str:
    return f"{'' if dataset_plan.exact else 'about '}{output.format_bytes(size)}"


def _fields(dataset_plan: DatasetPlan) -> dict[str, object]:
    return {
        "name": dataset_plan.name,
        "version": dataset_plan.version,
        "kind": dataset_plan.source.kind,
        "records": dataset_plan.records,
        "bytes": dataset_plan.bytes,
        "exact": dataset_plan.exact,
        "classes": list(dataset_plan.classes),
        "features": dataset_plan.features,
        **_images(dataset_plan.source),
        **({"tokens": dataset_plan.options.tokens} if dataset_plan.options.tokens else {}),
        "splits": {
            split.name: {
                "records": split.records,
                "bytes": split.bytes,
                "shards": split.sharding.count,
                "why": split.sharding.why,
            }
            for split in dataset_plan.splits
        },
        **({"also": dataset_plan.source.also} if dataset_plan.source.also else {}),
        "left_out": [str(record) for record in dataset_plan.source.bad],
    }


def _images(source: Source) -> dict[str, object]:
    if not source.images:
        return {}
    named = [str(record) for record in source.bad_images[:_MOST_NAMED]]
    return {"pictures": source.images, "summary": source.images.summary, "bad_pictures": named}
