"""Formats a dataset for all data commands: a table row, facts, JSON, a sentence."""

from __future__ import annotations

from tpuctl.cli import output, printing
from tpuctl.cli.datasets.tokens import describe_tokens
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.feature_types import feature_type

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
        "made from": f"{source.kind}, seed {source.seed}",
        **({"tokens": describe_tokens(tokens)} if tokens else {}),
        "skipped": source.skipped,
        "digest": manifest.digest[:12],
        "where": manifest.ref.uri(bucket),
    }


def _note_skipped(manifest: Manifest) -> None:
    for record in manifest.source.bad[:_MOST_BAD]:
        output.note(f"skipped: {record}")
